// Board: what each rank of a world does now, when it last gave a sign of life, and the first
// failure. It is plain memory, so that threads and processes of one host can share it.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "comm/call.h"

namespace orthant {

// Says that another rank failed: never the first error of a run.
class PeerFailed final : public Error {
 public:
  explicit PeerFailed(const std::string& message) : Error(Fault::kLost, message) {}
};

// An error that another process says: this one ends with the exit status alone.
class Reported final : public Error {
 public:
  using Error::Error;
};

// A value that one writes and others copy, without locks: a writer that is killed blocks nobody.
template <class T>
class Published {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  void write(const T& value) {
    Words words{};
    std::memcpy(words.data(), &value, sizeof(T));
    const std::uint32_t version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);
    for (std::size_t i = 0; i < kWords; ++i) {  // whoever sees one of them sees the odd version
      words_[i].store(words[i], std::memory_order_release);
    }
    version_.store(version + 2, std::memory_order_release);
  }
  // What was written last; while one writes, or was killed at it, it may be of two values.
  T read() const {
    constexpr int kMostTries = 1000;
    Words words{};
    for (int i = 0; i < kMostTries; ++i) {
      const std::uint32_t version = version_.load(std::memory_order_acquire);
      for (std::size_t word = 0; word < kWords; ++word) {
        words[word] = words_[word].load(std::memory_order_acquire);
      }
      if (version % 2 == 0 && version == version_.load(std::memory_order_relaxed)) break;
    }
    T value;
    std::memcpy(static_cast<void*>(&value), words.data(), sizeof(T));
    return value;
  }

 private:
  static constexpr std::size_t kWords = (sizeof(T) + 7) / 8;
  using Words = std::array<std::uint64_t, kWords>;
  std::atomic<std::uint32_t> version_;
  std::array<std::atomic<std::uint64_t>, kWords> words_;
};

struct RankStatus {
  Place group;  // of the last call; empty before the first
  Place where;
  Call::Kind kind = Call::Kind::kBarrier;
  int waits_for = -1;  // a world rank that has not come to the call yet; -1: it does not wait
  bool has_ended = false;
  double busy_s = 0;  // it has announced so long a silence
};

class Board {
 public:
  using Clock = std::chrono::steady_clock;

  static std::int64_t bytes(int size);
  // `memory` is aligned for words. The first to come resets it; others find it as it is.
  enum class Use { kReset, kJoin };
  Board(std::byte* memory, int size, Use use);

  int size() const { return size_; }

  double deadline_s() const { return head().deadline_s.load(std::memory_order_acquire); }
  void set_deadline(double seconds) { head().deadline_s.store(seconds, std::memory_order_release); }

  // Of a rank about itself; each is a sign of life.
  void note(int rank, const RankStatus& status);
  void note_call(int rank, std::string_view group, const Call& call, int waits_for);
  void note_end(int rank);
  void sign(int rank, double busy_s);
  // Another thread of that rank has seen its GPU at work: a sign of life, and no more.
  void touch(int rank);

  RankStatus status(int rank) const { return at(rank).status.read(); }
  Clock::time_point last_sign(int rank) const;  // or the end of what it has announced
  std::string describe(int rank) const;         // "rank 4 is in all_gather 'h.6.attn' (tp)"

  // The first failure stays. False: there was one before. `by` will say it: a rank, or -1.
  bool report(int by, std::string_view message);
  bool fail(int rank, std::string_view why) {
    return report(rank, fmt::format("rank {} failed: {}", rank, why));
  }
  bool has_failed() const { return head().failure_state.load(std::memory_order_acquire) != 0; }
  bool is_reported_by(int rank) const { return head().reporter.load() == rank; }
  std::string failure() const;  // "rank 3 failed: ..."

  // May a rank still wait for `missing`, as it does since `start`? Only silence counts: of the rank
  // that the missing one waits for, at the end of the chain. Where the chain is a circle there is
  // no such rank, and nobody can go on.
  struct Verdict {
    bool is_overdue = false;
    Clock::time_point look_again{};
    std::vector<int> ranks;  // whom a message should describe
  };
  Verdict judge(int rank, std::span<const int> missing, Clock::time_point start,
                double deadline_s) const;

 private:
  struct Text {
    std::array<char, 2000> text;
    std::uint32_t size;
  };
  struct Head {
    std::atomic<int> failure_state;  // 0 none, 1 being written, 2 written
    std::atomic<int> reporter;
    Published<Text> failure;
    std::atomic<double> deadline_s;  // of all ranks, for whoever watches them
  };
  struct Entry {
    std::atomic<std::int64_t> sign_ns;
    Published<RankStatus> status;
  };
  Head& head() const { return *reinterpret_cast<Head*>(memory_); }
  Entry& at(int rank) const;
  void append_chain(int rank, int first, std::vector<int>& chain) const;

  std::byte* memory_;
  int size_;
};

// The moment `seconds` after `start`, which may be very many.
Board::Clock::time_point after(Board::Clock::time_point start, double seconds);

}  // namespace orthant
