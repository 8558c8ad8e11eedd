// Greedy: lists made by letting all ranks work in equal slots of time, each on the most urgent
// action that can start. Pure and deterministic.
#pragma once

#include <functional>

#include "pipeline/schedule.h"

namespace orthant {

// What decides whether a rank may run a forward ahead.
struct ForwardState {
  int rank;
  int chunk;
  int ahead;      // forwards of this chunk less its input passes
  int in_flight;  // of all chunks: forwards less weight passes
};
using MayForward = std::function<bool(const ForwardState&)>;

// Forwards alone.
Schedule greedy_forward(const Placement& placement, int micros);

// Forwards, as far as `may_forward` allows, and backwards in two halves. A rank takes `urgent`
// passes before other ones, earlier chunks before later ones; weight passes fill what would be
// idle. Each of a chunk's passes runs in micro order. An action starts only when the tensor before
// it in its outgoing buffer has been taken: so the lists can run with one buffer a direction and
// chunk.
enum class Urgent { kForwards, kInputGradients };
Schedule greedy_split(const Placement& placement, int micros, Urgent urgent,
                      const MayForward& may_forward);

}  // namespace orthant
