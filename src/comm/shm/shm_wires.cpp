// Links of shared memory: a ring of bytes in each direction, and a bell that its reader hears.
#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include "comm/shm/shm_world.h"
#include "comm/transport.h"

namespace orthant {
namespace {

// Counters only grow; a position is a counter modulo the capacity, a power of two.
class Ring {
 public:
  // The first to come settles the capacity.
  Ring(std::byte* memory, std::uint64_t capacity)
      : head_(*reinterpret_cast<Head*>(memory)),
        data_(memory + sizeof(Head)),
        capacity_(settle(head_.capacity, capacity)) {}

  std::span<std::byte> room() const {
    const std::uint64_t written = head_.written.load(std::memory_order_relaxed);
    const std::uint64_t free = capacity_ - (written - head_.read.load());
    return row(written, free);
  }
  void push(std::size_t bytes) {
    head_.written.store(head_.written.load(std::memory_order_relaxed) + bytes);
  }
  std::span<const std::byte> front() const {
    const std::uint64_t read = head_.read.load(std::memory_order_relaxed);
    return row(read, head_.written.load() - read);
  }
  // True when the writer may have found no room.
  bool pop(std::size_t bytes) {
    const std::uint64_t read = head_.read.load(std::memory_order_relaxed);
    head_.read.store(read + bytes);
    // Either the writer sees the new count, or this sees all that it has written.
    return head_.written.load() - read == capacity_;
  }

 private:
  struct Head {
    alignas(64) std::atomic<std::uint64_t> written;
    alignas(64) std::atomic<std::uint64_t> read;
    alignas(64) std::atomic<std::uint64_t> capacity;
  };
  static std::uint64_t settle(std::atomic<std::uint64_t>& settled, std::uint64_t capacity) {
    std::uint64_t none = 0;
    settled.compare_exchange_strong(none, capacity);
    return settled.load();
  }
  static_assert(sizeof(Head) == kRingHeadBytes);
  std::span<std::byte> row(std::uint64_t from, std::uint64_t bytes) const {
    const std::uint64_t at = from % capacity_;
    return {data_ + at, static_cast<std::size_t>(std::min(bytes, capacity_ - at))};
  }
  Head& head_;
  std::byte* data_;
  std::uint64_t capacity_;
};

class ShmLink final : public Link {
 public:
  ShmLink(ShmWorld& world, int rank, int peer, int channel, std::uint64_t capacity)
      : world_(world),
        peer_(peer),
        out_(world.ring_memory(rank, peer, channel), capacity),
        in_(world.ring_memory(peer, rank, channel), capacity) {}

  std::span<std::byte> room() override { return out_.room(); }
  void push(std::size_t bytes) override {
    out_.push(bytes);
    world_.ring(peer_);
  }
  std::span<const std::byte> front() override { return in_.front(); }
  void pop(std::size_t bytes) override {
    if (in_.pop(bytes)) world_.ring(peer_);
  }

 private:
  ShmWorld& world_;
  int peer_;
  Ring out_;
  Ring in_;
};

class ShmWires final : public Wires {
 public:
  ShmWires(std::unique_ptr<ShmWorld> world, int rank, std::unique_ptr<PeerWatch> watch)
      : world_(std::move(world)),
        rank_(rank),
        watch_(std::move(watch)) {}

  int rank() const override { return rank_; }
  int size() const override { return world_->size(); }
  int num_local() const override { return world_->size(); }
  // Ranks of one host inherit what cores there are for all of them.
  int num_cores() const override { return static_cast<int>(std::thread::hardware_concurrency()); }
  std::unique_ptr<Link> link(int peer, int channel, int share) override {
    return std::make_unique<ShmLink>(*world_, rank_, peer, channel,
                                     static_cast<std::uint64_t>(ring_bytes(share)));
  }
  Transport transport() const override { return Transport::kSharedMemory; }
  Board& board() override { return world_->board(); }
  std::span<std::byte> shared_flags() override { return world_->flags(); }
  void wake_all() noexcept override { world_->ring_all(); }
  std::uint32_t ticket() override { return world_->ticket(rank_); }
  void sleep(std::uint32_t ticket, Board::Clock::time_point until) override {
    if (watch_ != nullptr) {
      watch_->look(world_->board());
      until = std::min(until, after(Board::Clock::now(), kWatchEvery));
    }
    world_->sleep(rank_, ticket, until);
  }
  void announce_sign() override {}
  void announce_end() override { world_->ring_all(); }
  void announce_failure(Fault /*fault*/) noexcept override { world_->ring_all(); }

 private:
  static constexpr double kWatchEvery = 0.2;
  std::unique_ptr<ShmWorld> world_;
  int rank_;
  std::unique_ptr<PeerWatch> watch_;
};

}  // namespace

std::unique_ptr<Wires> make_shm_wires(std::unique_ptr<ShmWorld> world, int rank,
                                      std::unique_ptr<PeerWatch> watch) {
  return std::make_unique<ShmWires>(std::move(world), rank, std::move(watch));
}

}  // namespace orthant
