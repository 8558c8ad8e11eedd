// ScratchPool: work memory that calls from several threads lend and give back, so that caches in it
// stay warm.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace orthant {

template <class Scratch>
class ScratchPool {
 public:
  class Lease {
   public:
    explicit Lease(ScratchPool& pool) : pool_(pool), scratch_(pool.take()) {}
    ~Lease() { pool_.give_back(std::move(scratch_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

    Scratch& operator*() const { return *scratch_; }

   private:
    ScratchPool& pool_;
    std::unique_ptr<Scratch> scratch_;
  };

 private:
  std::unique_ptr<Scratch> take() {
    const std::lock_guard lock(mutex_);
    if (spare_.empty()) {
      auto made = std::make_unique<Scratch>();
      spare_.reserve(++num_made_);  // so that give_back does not allocate
      return made;
    }
    std::unique_ptr<Scratch> scratch = std::move(spare_.back());
    spare_.pop_back();
    return scratch;
  }

  void give_back(std::unique_ptr<Scratch> scratch) {
    const std::lock_guard lock(mutex_);
    spare_.push_back(std::move(scratch));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> spare_;
  std::size_t num_made_ = 0;
};

}  // namespace orthant
