#include "comm/board.h"

#include <algorithm>
#include <memory>
#include <thread>

#include <fmt/format.h>

namespace orthant {
namespace {

constexpr std::int64_t kAlign = 64;

std::int64_t align(std::size_t bytes) {
  return (static_cast<std::int64_t>(bytes) + kAlign - 1) / kAlign * kAlign;
}

// A circle of waiting ranks that stands this long is no accident of scheduling.
constexpr double kCircleStands = 10;

}  // namespace

std::int64_t Board::bytes(int size) {
  return align(sizeof(Head)) + size * align(sizeof(Entry));
}

Board::Board(std::byte* memory, int size, Use use) : memory_(memory), size_(size) {
  if (use == Use::kJoin) return;
  std::construct_at(reinterpret_cast<Head*>(memory_));
  for (int rank = 0; rank < size_; ++rank) {
    std::construct_at(&at(rank));
    note(rank, {});
  }
}

Board::Entry& Board::at(int rank) const {
  return *reinterpret_cast<Entry*>(memory_ + align(sizeof(Head)) + rank * align(sizeof(Entry)));
}

void Board::note(int rank, const RankStatus& status) {
  at(rank).status.write(status);
  at(rank).sign_ns.store(after(Clock::now(), status.busy_s).time_since_epoch().count(),
                         std::memory_order_release);
}

void Board::note_call(int rank, std::string_view group, const Call& call, int waits_for) {
  note(rank, {.group = Place(group),
              .where = call.where,
              .kind = call.kind,
              .waits_for = waits_for,
              .has_ended = false,
              .busy_s = 0});
}

void Board::note_end(int rank) {
  RankStatus last = status(rank);
  last.has_ended = true;
  last.waits_for = -1;
  last.busy_s = 0;
  note(rank, last);
}

void Board::sign(int rank, double busy_s) {
  RankStatus same = status(rank);
  same.busy_s = busy_s;
  note(rank, same);
}

void Board::touch(int rank) {
  const std::int64_t now = Clock::now().time_since_epoch().count();
  std::atomic<std::int64_t>& last = at(rank).sign_ns;
  std::int64_t before = last.load(std::memory_order_acquire);
  while (before < now && !last.compare_exchange_weak(before, now)) {
  }
}

Board::Clock::time_point Board::last_sign(int rank) const {
  return Clock::time_point(Clock::duration(at(rank).sign_ns.load(std::memory_order_acquire)));
}

std::string Board::describe(int rank) const {
  const RankStatus last = status(rank);
  if (last.group.text().empty()) {
    return fmt::format("rank {} {}", rank,
                       last.has_ended ? "has ended without a call" : "has made no call");
  }
  const char* does = last.has_ended        ? "has ended after"
                     : last.waits_for >= 0 ? "is in"
                                           : "has gone on from";
  return fmt::format("rank {} {} {} ({})", rank, does, text_of(last.kind, last.where),
                     last.group.text());
}

bool Board::report(int by, std::string_view message) {
  int none = 0;
  if (!head().failure_state.compare_exchange_strong(none, 1)) return false;
  Text text{};
  text.size = static_cast<std::uint32_t>(std::min(message.size(), text.text.size()));
  std::copy_n(message.begin(), text.size, text.text.begin());
  head().reporter.store(by);
  head().failure.write(text);
  head().failure_state.store(2, std::memory_order_release);
  return true;
}

std::string Board::failure() const {
  constexpr int kMostMs = 100;  // its writer may have been killed
  for (int i = 0; i < kMostMs && head().failure_state.load(std::memory_order_acquire) == 1; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const Text text = head().failure.read();
  return {text.text.data(), std::min<std::size_t>(text.size, text.text.size())};
}

// `first`, then whom each waits for, until one does not wait or has been listed.
void Board::append_chain(int rank, int first, std::vector<int>& chain) const {
  for (int at = first; at >= 0 && at != rank; at = status(at).waits_for) {
    if (std::find(chain.begin(), chain.end(), at) != chain.end()) return;
    chain.push_back(at);
  }
}

Board::Verdict Board::judge(int rank, std::span<const int> missing, Clock::time_point start,
                            double deadline_s) const {
  Verdict verdict;
  verdict.look_again = after(start, deadline_s);
  const Clock::time_point now = Clock::now();
  bool is_first = true;
  for (const int peer : missing) {
    std::vector<int> chain;
    append_chain(rank, peer, chain);
    const int last = chain.empty() ? rank : chain.back();
    const bool is_circle = status(last).waits_for >= 0;
    Clock::time_point silent_since = start;
    for (const int at : chain) {
      // In a circle every sign is of a rank that came to wait later.
      if (is_circle || at == last) silent_since = std::max(silent_since, last_sign(at));
    }
    const double patience_s = is_circle ? std::min(deadline_s, kCircleStands) : deadline_s;
    const Clock::time_point end = after(silent_since, patience_s);
    verdict.look_again = is_first ? end : std::min(verdict.look_again, end);
    is_first = false;
    if (now < end) continue;
    verdict.is_overdue = true;
    verdict.ranks.assign(missing.begin(), missing.end());
    for (const int at : chain) {
      if (std::find(missing.begin(), missing.end(), at) == missing.end()) {
        verdict.ranks.push_back(at);
      }
    }
    return verdict;
  }
  return verdict;
}

Board::Clock::time_point after(Board::Clock::time_point start, double seconds) {
  constexpr double kForever = 1e8;
  return start + std::chrono::duration_cast<Board::Clock::duration>(
                     std::chrono::duration<double>(std::min(seconds, kForever)));
}

}  // namespace orthant
