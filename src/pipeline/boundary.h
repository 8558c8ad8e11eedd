// Boundary: the tensors that cross between neighbouring parts of the model, and the messages that
// carry them. lower(), simulate() and the interpreter know them from here only.
#pragma once

#include <cstdint>
#include <optional>

#include "pipeline/schedule.h"

namespace orthant {

// Activations and gradients travel on separate communicators.
enum class Cargo : std::uint8_t { kAct, kGrad };
inline constexpr int kNumCargos = 2;

// The other end of a boundary.
struct Crossing {
  Cargo cargo;
  Placement::Place peer;
  // Both parts are on one rank, as where a V turns. No message then: what one chunk writes is what
  // the other reads, so the stage gives both the same buffer, and it must be read before the next
  // is written.
  bool is_local;
};

bool is_compute(Action::Kind kind);
bool is_send(Action::Kind kind);
bool is_recv(Action::Kind kind);
bool is_backward(Action::Kind kind);       // one of the three backward actions
bool is_last_backward(Action::Kind kind);  // the micro-batch's stash is no longer needed after it
bool has_backward(const RankActions& actions);  // an evaluation has none

// One more than the highest micro-batch. Refuses one that a list of this length cannot have: a slip
// in a text must not become a table of a billion.
int count_micros(const Schedule& schedule);

Cargo cargo_of(Action::Kind message);  // of a send or a receive
Action::Kind send_of(Cargo cargo);
Action::Kind recv_of(Cargo cargo);

// Where the boundary tensor comes from that a compute action reads, and where the one goes that it
// writes; nothing for a weight pass and at the ends of the model.
std::optional<Crossing> read_by(const Action& action, const Placement& placement, int rank);
std::optional<Crossing> written_by(const Action& action, const Placement& placement, int rank);

// The other end of a send or a receive of this rank; nothing when no other rank is there.
std::optional<Crossing> crossing_of(const Action& message, const Placement& placement, int rank);

// What both sides call a message: its cargo, the chunk that receives it and its micro-batch.
std::int64_t identity_of(Cargo cargo, int receiving_chunk, int micro);

}  // namespace orthant
