// Loader: copies the samples of the next steps in a thread of its own, so that a step finds them
// ready.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "data/batch_plan.h"
#include "data/token_source.h"

namespace orthant {

// One rank's samples of one step. The spans are valid until the following next().
struct Batch {
  std::int64_t step = 0;
  std::int64_t num_micros = 0;
  std::span<const std::int32_t> tokens;     // [num_micros, b, S + 1]
  std::span<const std::int64_t> positions;  // [num_micros, b]: global sample positions
  // Where geometry.by_document; else empty.
  std::span<const std::int32_t> places;   // [num_micros, b, S + 1]: TokenSource::copy_places
  std::span<const std::int64_t> targets;  // [num_micros]: num_targets()

  std::span<const std::int32_t> micro_tokens(std::int64_t micro) const {
    return part(tokens, micro);
  }
  std::span<const std::int64_t> micro_positions(std::int64_t micro) const {
    return part(positions, micro);
  }
  std::span<const std::int32_t> micro_places(std::int64_t micro) const {
    return part(places, micro);
  }

 private:
  template <class T>
  std::span<const T> part(std::span<const T> all, std::int64_t micro) const {
    const auto size = all.size() / static_cast<std::size_t>(num_micros);
    return all.subspan(static_cast<std::size_t>(micro) * size, size);
  }
};

// TokenSource::num_targets of a micro-batch over all dp ranks: each knows what the others read.
std::int64_t num_targets(const TokenSource& source, BatchGeometry geometry, std::int64_t step,
                         std::int64_t micro);

// All memory is taken by the constructor; the thread runs at most two steps ahead.
class Loader {
 public:
  // `source` must outlive the loader.
  Loader(const TokenSource& source, const BatchGeometry& geometry, std::int64_t first_step);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The batch of the next step; waits when it is not ready. What failed in the thread is thrown
  // here, and at every call after it.
  Batch next();

  // What a loader allocates.
  static std::int64_t buffer_bytes(const BatchGeometry& geometry);

 private:
  static constexpr std::int64_t kNumBuffers = 2;
  struct Buffer {
    std::vector<std::int32_t> tokens;
    std::vector<std::int64_t> positions;
    std::vector<std::int32_t> places;
    std::vector<std::int64_t> targets;
  };

  void run();
  void fill(std::int64_t step, Buffer& buffer) const;
  Buffer& buffer_of(std::int64_t step) {
    return buffers_[static_cast<std::size_t>(step % kNumBuffers)];
  }

  const TokenSource& source_;
  const BatchGeometry geometry_;
  std::array<Buffer, kNumBuffers> buffers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t filled_;    // steps before this one are or were ready
  std::int64_t released_;  // buffers of steps before this one may be overwritten
  std::int64_t next_;      // the step of the following next()
  bool is_stopping_ = false;
  std::exception_ptr failure_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace orthant
