// Replay: each rank goes on until it has to wait, in turn, until all have ended or all wait. Who
// goes first does not matter: a rank waits for a certain message, never for any of several.
#include "pipeline/replay.h"

#include <algorithm>

#include <fmt/core.h>

#include "base/check.h"

namespace orthant {
namespace {

std::string text_of(const Action& action) {
  return to_text({action});
}

// The list names a message by its micro-batch and the chunk of the rank whose list it is.
Action message(Action::Kind kind, int chunk, int micro) {
  return {kind, chunk, micro};
}

}  // namespace

Replay::Replay(const Schedule& lowered, const Placement& placement, const ActionTimes& times)
    : lowered_(lowered),
      placement_(placement),
      times_(times) {
  const std::size_t num_ranks = lowered.size();
  ORTHANT_CHECK(static_cast<int>(num_ranks) == placement.num_ranks(),
                "the schedule has {} ranks, the placement {}", num_ranks, placement.num_ranks());
  ranks_.resize(num_ranks);
  channels_.resize(kNumCargos * num_ranks * num_ranks);
  for (int rank = 0; rank < placement.num_ranks(); ++rank) {
    for (Buffers* buffers : {&at(rank).incoming, &at(rank).outgoing}) {
      for (std::vector<Buffer>& chunks : *buffers) {
        chunks.resize(static_cast<std::size_t>(placement.num_chunks(rank)));
      }
    }
  }
}

void Replay::run() {
  bool moved = true;
  while (moved) {
    moved = false;
    for (int rank = 0; rank < placement_.num_ranks(); ++rank) {
      while (advance(rank)) {
        moved = true;
      }
    }
  }
  for (int rank = 0; rank < placement_.num_ranks(); ++rank) {
    if (!has_ended(rank)) fail_stuck();
  }
  for (int rank = 0; rank < placement_.num_ranks(); ++rank) {
    check_ended(rank);
  }
}

double Replay::makespan() const {
  double last = 0;
  for (const Rank& rank : ranks_) {
    last = std::max(last, rank.time);
  }
  return last;
}

bool Replay::advance(int rank) {
  if (has_ended(rank)) return false;
  const Action& action = next_of(rank);
  if (is_send(action.kind)) {
    send(rank, action);
  } else if (is_recv(action.kind)) {
    receive(rank, action);
  } else if (!compute(rank, action)) {
    return false;
  }
  ++at(rank).next;
  return true;
}

void Replay::send(int rank, const Action& action) {
  const auto to = crossing_of(action, placement_, rank);
  if (!to) fail(rank, "no other rank is there to receive it");
  Buffer& buffer = at(at(rank).outgoing, to->cargo, action.chunk);
  if (buffer.written != action.micro) {
    fail(rank, "the action before it in this buffer did not write that, or it was sent before");
  }
  Channel& pair = channel(to->cargo, rank, to->peer.rank);
  buffer = {.micro = action.micro, .written = kNone, .index = pair.sends.size()};
  pair.sends.push_back({action, at(rank).time});
  check_pair(rank, to->cargo, rank, to->peer.rank, buffer.index);
}

void Replay::receive(int rank, const Action& action) {
  const auto from = crossing_of(action, placement_, rank);
  if (!from) fail(rank, "no other rank is there to send it");
  Buffer& buffer = at(at(rank).incoming, from->cargo, action.chunk);
  if (buffer.micro != kNone) {
    fail(rank, fmt::format("the buffer still has micro-batch {}", buffer.micro));
  }
  Channel& pair = channel(from->cargo, from->peer.rank, rank);
  buffer = {.micro = action.micro, .written = kNone, .index = pair.receives.size()};
  pair.receives.push_back({action, at(rank).time});
  check_pair(rank, from->cargo, from->peer.rank, rank, buffer.index);
}

void Replay::check_pair(int rank, Cargo cargo, int source, int target, std::size_t index) {
  const Channel& pair = channel(cargo, source, target);
  if (index >= pair.sends.size() || index >= pair.receives.size()) return;
  const Action& sent = pair.sends[index].action;
  const Action& received = pair.receives[index].action;
  const auto to = crossing_of(sent, placement_, source);
  if (sent.micro == received.micro && to->peer.chunk == received.chunk) return;
  fail(rank, fmt::format("message {} from rank {} to rank {} is {} there and {} here; both sides "
                         "must name a pair's messages in the same order",
                         index, source, target, text_of(rank == source ? received : sent),
                         text_of(rank == source ? sent : received)));
}

void Replay::check_output(int rank, const Action& action, const Crossing& to) {
  if (to.is_local) {
    const int unread = at(at(rank).incoming, to.cargo, to.peer.chunk).micro;
    if (unread == kNone) return;
    fail(rank, fmt::format("chunk {} has not read micro-batch {} yet", to.peer.chunk, unread));
  }
  const int unsent = at(at(rank).outgoing, to.cargo, action.chunk).written;
  if (unsent == kNone) return;
  fail(rank, fmt::format("it overwrites what {} should have sent, which is missing",
                         text_of(message(send_of(to.cargo), action.chunk, unsent))));
}

void Replay::check_input(int rank, const Action& action, const Crossing& from) {
  const int micro = at(at(rank).incoming, from.cargo, action.chunk).micro;
  if (micro == action.micro) return;
  const std::string found = micro == kNone ? "nothing" : fmt::format("micro-batch {}", micro);
  if (from.is_local) {
    fail(rank, fmt::format("chunk {} should have written its input; there is {}", from.peer.chunk,
                           found));
  }
  fail(rank, fmt::format("{} should be posted before it; there is {}",
                         text_of(message(recv_of(from.cargo), action.chunk, action.micro)), found));
}

std::optional<double> Replay::output_free(int rank, const Action& action, const Crossing& to) {
  const Buffer& buffer = at(at(rank).outgoing, to.cargo, action.chunk);
  if (to.is_local || buffer.micro == kNone) return at(rank).time;
  const Channel& pair = channel(to.cargo, rank, to.peer.rank);
  if (buffer.index >= pair.receives.size()) return std::nullopt;
  return std::max(at(rank).time, pair.receives[buffer.index].time);
}

std::optional<double> Replay::input_full(int rank, const Action& action, const Crossing& from) {
  if (from.is_local) return at(rank).time;
  const Buffer& buffer = at(at(rank).incoming, from.cargo, action.chunk);
  const Channel& pair = channel(from.cargo, from.peer.rank, rank);
  if (buffer.index >= pair.sends.size()) return std::nullopt;
  return std::max(at(rank).time, pair.sends[buffer.index].time);
}

bool Replay::compute(int rank, const Action& action) {
  const auto to = written_by(action, placement_, rank);
  const auto from = read_by(action, placement_, rank);
  double start = at(rank).time;
  if (to) {
    check_output(rank, action, *to);
    const auto free = output_free(rank, action, *to);
    if (!free) return false;
    start = std::max(start, *free);
  }
  if (from) {
    check_input(rank, action, *from);
    const auto full = input_full(rank, action, *from);
    if (!full) return false;
    start = std::max(start, *full);
    at(at(rank).incoming, from->cargo, action.chunk).micro = kNone;
  }
  if (to && to->is_local) {
    at(at(rank).incoming, to->cargo, to->peer.chunk).micro = action.micro;
  } else if (to) {
    at(at(rank).outgoing, to->cargo, action.chunk) = {
        .micro = kNone, .written = action.micro, .index = 0};
  }
  at(rank).time = start + time_of(action.kind);
  busy_ += time_of(action.kind);
  return true;
}

double Replay::time_of(Action::Kind kind) const {
  switch (kind) {
    case Action::Kind::kForward: return times_.forward;
    case Action::Kind::kBackward: return times_.backward;
    case Action::Kind::kBackwardInput: return times_.backward_input;
    case Action::Kind::kBackwardWeight: return times_.backward_weight;
    default: return 0;
  }
}

// A rank waits for its last sends when its list is over.
void Replay::check_ended(int rank) {
  for (const Cargo cargo : {Cargo::kAct, Cargo::kGrad}) {
    for (int chunk = 0; chunk < placement_.num_chunks(rank); ++chunk) {
      const Buffer& out = at(at(rank).outgoing, cargo, chunk);
      if (out.written != kNone) {
        fail(rank,
             fmt::format("{} is missing", text_of(message(send_of(cargo), chunk, out.written))));
      }
      if (out.micro != kNone) {
        const Action sent = message(send_of(cargo), chunk, out.micro);
        const int peer = crossing_of(sent, placement_, rank)->peer.rank;
        if (out.index >= channel(cargo, rank, peer).receives.size()) fail_stuck();
      }
      const Buffer& in = at(at(rank).incoming, cargo, chunk);
      if (in.micro != kNone) {
        fail(rank,
             fmt::format("nothing reads what chunk {} got for micro-batch {}", chunk, in.micro));
      }
    }
  }
}

bool Replay::has_ended(int rank) const {
  return at(rank).next == static_cast<int>(list(rank).size());
}

const Action& Replay::next_of(int rank) const {
  return list(rank)[static_cast<std::size_t>(at(rank).next)];
}

Replay::Channel& Replay::channel(Cargo cargo, int source, int target) {
  const std::size_t row = static_cast<std::size_t>(cargo) * lowered_.size();
  return channels_[(row + static_cast<std::size_t>(source)) * lowered_.size() +
                   static_cast<std::size_t>(target)];
}

}  // namespace orthant
