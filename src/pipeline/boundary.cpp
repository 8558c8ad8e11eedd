// Boundary: which neighbour each action faces.
#include "pipeline/boundary.h"

#include <algorithm>

#include "base/check.h"

namespace orthant {
namespace {

// The part `step` further on in the model than this rank's chunk.
std::optional<Crossing> neighbour(Cargo cargo, const Placement& placement, int rank, int chunk,
                                  int step) {
  const int part = placement.part_at(rank, chunk) + step;
  if (part < 0 || part >= placement.num_parts()) return std::nullopt;
  const Placement::Place peer = placement.at(part);
  return Crossing{cargo, peer, peer.rank == rank};
}

}  // namespace

bool is_compute(Action::Kind kind) {
  return kind == Action::Kind::kForward || is_backward(kind);
}

bool is_send(Action::Kind kind) {
  return kind == Action::Kind::kSendAct || kind == Action::Kind::kSendGrad;
}

bool is_recv(Action::Kind kind) {
  return kind == Action::Kind::kRecvAct || kind == Action::Kind::kRecvGrad;
}

bool is_backward(Action::Kind kind) {
  return kind == Action::Kind::kBackwardInput || is_last_backward(kind);
}

bool is_last_backward(Action::Kind kind) {
  return kind == Action::Kind::kBackward || kind == Action::Kind::kBackwardWeight;
}

bool has_backward(const RankActions& actions) {
  return std::any_of(actions.begin(), actions.end(),
                     [](const Action& action) { return is_backward(action.kind); });
}

int count_micros(const Schedule& schedule) {
  std::size_t num_actions = 0;
  for (const RankActions& actions : schedule) {
    num_actions += actions.size();
  }
  int num_micros = 0;
  for (std::size_t rank = 0; rank < schedule.size(); ++rank) {
    for (const Action& action : schedule[rank]) {
      num_micros = std::max(num_micros, action.micro + 1);
      if (action.micro >= 0 && static_cast<std::size_t>(action.micro) < num_actions) continue;
      throw ScheduleError(static_cast<int>(rank),
                          fmt::format("schedule: {} in a schedule of {} actions; micro-batches "
                                      "count from 0",
                                      to_text({action}), num_actions));
    }
  }
  return num_micros;
}

Cargo cargo_of(Action::Kind message) {
  ORTHANT_CHECK(is_send(message) || is_recv(message), "cargo_of: action kind {} is no message",
                static_cast<int>(message));
  const bool act = message == Action::Kind::kSendAct || message == Action::Kind::kRecvAct;
  return act ? Cargo::kAct : Cargo::kGrad;
}

Action::Kind send_of(Cargo cargo) {
  return cargo == Cargo::kAct ? Action::Kind::kSendAct : Action::Kind::kSendGrad;
}

Action::Kind recv_of(Cargo cargo) {
  return cargo == Cargo::kAct ? Action::Kind::kRecvAct : Action::Kind::kRecvGrad;
}

std::optional<Crossing> read_by(const Action& action, const Placement& placement, int rank) {
  switch (action.kind) {
    case Action::Kind::kForward: return neighbour(Cargo::kAct, placement, rank, action.chunk, -1);
    case Action::Kind::kBackward:
    case Action::Kind::kBackwardInput:
      return neighbour(Cargo::kGrad, placement, rank, action.chunk, +1);
    default: return std::nullopt;
  }
}

std::optional<Crossing> written_by(const Action& action, const Placement& placement, int rank) {
  switch (action.kind) {
    case Action::Kind::kForward: return neighbour(Cargo::kAct, placement, rank, action.chunk, +1);
    case Action::Kind::kBackward:
    case Action::Kind::kBackwardInput:
      return neighbour(Cargo::kGrad, placement, rank, action.chunk, -1);
    default: return std::nullopt;
  }
}

std::optional<Crossing> crossing_of(const Action& message, const Placement& placement, int rank) {
  const Cargo cargo = cargo_of(message.kind);
  const bool onward = is_send(message.kind) == (cargo == Cargo::kAct);
  const auto other = neighbour(cargo, placement, rank, message.chunk, onward ? +1 : -1);
  return other && !other->is_local ? other : std::nullopt;
}

std::int64_t identity_of(Cargo cargo, int receiving_chunk, int micro) {
  return static_cast<std::int64_t>(cargo) << 56 | static_cast<std::int64_t>(receiving_chunk) << 32 |
         static_cast<std::int64_t>(micro);
}

}  // namespace orthant
