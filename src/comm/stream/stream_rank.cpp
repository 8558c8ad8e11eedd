#include "comm/stream/stream_rank.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "comm/stream/stream_communicator.h"

namespace orthant {

StreamRank::StreamRank(std::unique_ptr<Wires> wires, double deadline_s)
    : wires_(std::move(wires)),
      deadline_s_(deadline_s) {
  wires_->board().set_deadline(deadline_s);
  wires_->board().note(rank(), {});
}

void StreamRank::set_deadline(double seconds) {
  deadline_s_ = seconds;
  wires_->board().set_deadline(seconds);
}

void StreamRank::add(StreamCommunicator& group) {
  groups_.push_back(&group);
}

void StreamRank::remove(StreamCommunicator& group) {
  std::erase(groups_, &group);
}

void StreamRank::note(const StreamCommunicator& group, const Call& call, int waits_for) {
  wires_->board().note_call(rank(), group.name(), call, waits_for);
}

bool StreamRank::progress() {
  bool moved = false;
  for (StreamCommunicator* group : groups_) {
    if (group->progress()) moved = true;
  }
  return moved;
}

void StreamRank::wait(StreamCommunicator& group, const Call& call) {
  Board::Clock::time_point start = Board::Clock::now();
  int noted = -1;
  for (;;) {
    const std::uint32_t ticket = wires_->ticket();
    throw_if_failed();
    const bool moved = progress();
    if (group.is_done(call)) break;
    if (moved) {  // bytes that come are signs of life too
      start = Board::Clock::now();
      wires_->board().sign(rank(), 0);
      continue;
    }
    const std::vector<int> missing = group.missing(call);
    if (missing.empty()) {  // something has come meanwhile, or all have and are being connected
      if (group.is_connecting(call)) wait_for_links(group, call, start, ticket);
      continue;
    }
    fail_if_ended(group, call, missing);
    if (noted != missing.front()) {
      noted = missing.front();
      note(group, call, noted);
    }
    const Board::Verdict verdict = wires_->board().judge(rank(), missing, start, deadline_s_);
    if (verdict.is_overdue) {
      std::vector<std::string> others;
      for (const int other : verdict.ranks) {
        others.push_back(wires_->board().describe(other));
      }
      fail(fmt::format("{} waited {:g} s in {}; {}", group.title(), deadline_s_,
                       text_of(call.kind, call.where), join(others)));
    }
    wires_->sleep(ticket, verdict.look_again);
  }
  if (noted >= 0) note(group, call, -1);
}

// All ranks have come to the call, and what moves it is not ready: a call is queued within
// microseconds, a connection is made within seconds.
void StreamRank::wait_for_links(const StreamCommunicator& group, const Call& call,
                                Board::Clock::time_point start, std::uint32_t ticket) {
  constexpr double kShortest = 1e-5;
  constexpr double kLongest = 1e-3;
  constexpr double kShare = 0.25;  // of the time waited so far
  wires_->board().touch(rank());
  const Board::Clock::time_point now = Board::Clock::now();
  if (now >= after(start, deadline_s_)) {
    fail(fmt::format("{} waited {:g} s for its GPUs to be connected in {}", group.title(),
                     deadline_s_, text_of(call.kind, call.where)));
  }
  const double waited = std::chrono::duration<double>(now - start).count();
  wires_->sleep(ticket, after(now, std::clamp(kShare * waited, kShortest, kLongest)));
}

// What a rank has sent before its end counts, so it is taken before the verdict.
void StreamRank::fail_if_ended(const StreamCommunicator& group, const Call& call,
                               std::span<const int> missing) {
  const auto ended = std::find_if(missing.begin(), missing.end(), [this](int other) {
    return wires_->board().status(other).has_ended;
  });
  if (ended == missing.end() || progress() || group.is_done(call)) return;
  throw_if_failed();
  fail(fmt::format("{} waits in {}, but {}", group.title(), text_of(call.kind, call.where),
                   wires_->board().describe(*ended)));
}

void StreamRank::sign_of_life(double busy_s) {
  wires_->board().sign(rank(), busy_s);
  wires_->announce_sign();
}

void StreamRank::throw_if_failed() {
  const Board& board = wires_->board();
  if (!board.has_failed()) return;
  // What a thread of this rank has found, this rank says.
  const std::string mine = fmt::format("rank {} failed: ", rank());
  std::string message = board.failure();
  if (!board.is_reported_by(rank()) || !message.starts_with(mine)) throw PeerFailed(message);
  wires_->announce_failure(Fault::kLost);
  throw Error(Fault::kLost, message.substr(mine.size()));
}

void StreamRank::fail(const std::string& message) {
  if (!wires_->board().fail(rank(), message)) throw_if_failed();
  wires_->announce_failure(Fault::kLost);
  throw Error(Fault::kLost, message);
}

void StreamRank::end() {
  wires_->board().note_end(rank());
  wires_->announce_end();
}

}  // namespace orthant
