// ShmWorld: one mapping that the processes of a host share: the board, a bell for each rank, and a
// ring of bytes for each link. It has no name and goes with its last process.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "comm/board.h"
#include "comm/stream/wires.h"

namespace orthant {

class ShmWorld {
 public:
  // Makes it, for `size` ranks.
  explicit ShmWorld(int size);
  // Maps what another process has made. `fd` is closed.
  ShmWorld(int fd, int size);
  ~ShmWorld();
  ShmWorld(const ShmWorld&) = delete;
  ShmWorld& operator=(const ShmWorld&) = delete;

  int size() const { return size_; }
  int fd() const { return fd_; }  // of its maker, for the other processes
  Board& board() { return board_; }

  // Rings a rank's bell, and wakes it if it sleeps.
  void ring(int rank);
  void ring_all();
  std::uint32_t ticket(int rank) const;
  void sleep(int rank, std::uint32_t ticket, Board::Clock::time_point until);

  // Words that GPUs of the ranks write and wait for; empty in large worlds.
  std::span<std::byte> flags() const;
  static constexpr int kMostRanksWithFlags = 64;

  // The ring of bytes from one rank to another.
  std::byte* ring_memory(int from, int to, int channel) const;
  static constexpr int kMostChannels = 64;

 private:
  struct alignas(64) Bell {
    std::atomic<std::uint32_t> count;
    std::atomic<std::uint32_t> is_asleep;
  };
  Bell& bell(int rank) const;
  static std::int64_t bytes(int size);
  static std::int64_t flag_bytes(int size);

  int size_;
  int fd_;
  std::byte* memory_;
  Board board_;
};

// Looks for the end of other processes, where no launcher does. A rank that waits looks every now
// and then; who sees it first puts it on the board and throws it.
class PeerWatch {
 public:
  virtual ~PeerWatch() = default;
  virtual void look(Board& board) = 0;
};

// The wires of one rank of it. `watch` may be null.
std::unique_ptr<Wires> make_shm_wires(std::unique_ptr<ShmWorld> world, int rank,
                                      std::unique_ptr<PeerWatch> watch);

}  // namespace orthant
