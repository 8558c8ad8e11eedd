// Wires: what connects a rank that is a process with the others. A Link carries bytes in order to
// one of them and back, through memory of fixed size; nothing but sleep() blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/check.h"
#include "comm/board.h"
#include "comm/transport.h"

namespace orthant {

class Link {
 public:
  virtual ~Link() = default;
  // What may be written now, in a row: no bytes or at least kGrain.
  virtual std::span<std::byte> room() = 0;
  virtual void push(std::size_t bytes) = 0;  // so many of room() are written
  // What has arrived, in a row.
  virtual std::span<const std::byte> front() = 0;
  virtual void pop(std::size_t bytes) = 0;  // so many of front() are read
};

class Wires {
 public:
  // Rows of bytes begin and end at multiples of this, or where a push has ended.
  static constexpr std::size_t kGrain = 64;

  virtual ~Wires() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int num_local() const = 0;  // ranks on this host
  virtual int num_cores() const = 0;  // that these share
  virtual Transport transport() const = 0;
  // Both ends name the same channel, and as `share` the same number of links that share the memory
  // of this one.
  virtual std::unique_ptr<Link> link(int peer, int channel, int share) = 0;
  // Of this rank's host, or a copy that messages keep.
  virtual Board& board() = 0;

  // Memory that all ranks share, for flags of GPUs: whole pages; empty where there is none.
  virtual std::span<std::byte> shared_flags() { return {}; }

  // Sleeps until `until` or until some link may have changed since the ticket was taken, and not
  // longer than it takes to notice what nobody announces.
  virtual std::uint32_t ticket() = 0;
  virtual void sleep(std::uint32_t ticket, Board::Clock::time_point until) = 0;
  // From any thread: who sleeps looks again. Not needed where sleep() is short.
  virtual void wake_all() noexcept {}
  // The board has a sign of life, the end, a failure of this rank: the others must learn it. A
  // failure stops them.
  virtual void announce_sign() = 0;
  virtual void announce_end() = 0;
  virtual void announce_failure(Fault fault) noexcept = 0;
};

}  // namespace orthant
