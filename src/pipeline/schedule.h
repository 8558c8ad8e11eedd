// Schedule: the order of one step's work, as data. Generators are pure functions; lower() adds the
// messages; simulate() proves before the run that no rank waits for ever.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "pipeline/placement.h"

namespace orthant {

struct Action {
  enum class Kind : std::uint8_t {
    kForward,
    kBackward,
    kBackwardInput,
    kBackwardWeight,
    kSendAct,
    kRecvAct,
    kSendGrad,
    kRecvGrad
  };
  Kind kind;
  int chunk;  // which of this rank's model parts, 0 without interleaving
  int micro;
  friend bool operator==(const Action&, const Action&) = default;
};
using RankActions = std::vector<Action>;
using Schedule = std::vector<RankActions>;  // index: pipeline rank

// What a run file asks of its schedule.
struct ScheduleChoice {
  std::string name = "1f1b";
  int num_ranks = 1;      // of the pipeline
  int num_chunks = 1;     // parts of each, where the schedule leaves a choice: interleaved
  std::string path = {};  // of a schedule "file", for messages
  std::string text = {};  // what is in it
};
Placement placement_of(const ScheduleChoice& choice);

// Compute actions only.
Schedule gpipe(int ranks, int micros);        // all forwards, then all backwards in micro order
Schedule one_f_one_b(int ranks, int micros);  // warm-up, then one forward and one backward in turn
Schedule interleaved(int ranks, int chunks, int micros);  // 1f1b over several parts a rank
Schedule zero_bubble(int ranks, int micros);              // backwards in two halves
Schedule zero_bubble_v(int ranks, int micros);            // the same on a V of two parts a rank
Schedule forward_only(const Placement& placement, int micros);

std::vector<std::string> schedule_names();
// The schedule of that name, or a user error that names the nearest.
Schedule make_schedule(const ScheduleChoice& choice, int micros);

inline constexpr int kMaxChunks = 64;  // parts of a rank

// What lower() and simulate() throw, with the rank whose list shows it.
class ScheduleError final : public Error {
 public:
  ScheduleError(int rank, const std::string& message) : Error(Fault::kRun, message), rank_(rank) {}
  int rank() const { return rank_; }

 private:
  int rank_;
};

// Adds the messages between neighbouring parts. A receive is posted one compute action before the
// one that reads it, a send right after the one that wrote it. lower.cpp states what a lowered list
// means. Parts of one rank exchange no messages.
Schedule lower(const Schedule& compute, const Placement& placement);

// Runs a lowered schedule with rendezvous sends and one buffer a direction, chunk and kind: a send
// ends when its receive is posted, the next action that writes its buffer waits for that, a compute
// action waits for its receive. Throws with each rank's position when a rank can never go on, and
// when an action is missing, doubled, out of micro order among forwards or weight passes, or comes
// before what it needs. Returns the number of rounds: how long it takes when each compute action
// takes 1.
int simulate(const Schedule& lowered, const Placement& placement);

// Idle share of a lowered schedule when forward, input-gradient and weight-gradient take the given
// times.
double bubble(const Schedule& lowered, const Placement& placement, double forward,
              double backward_input, double backward_weight);

// Micro-batches that are between forward and the end of backward at once: of a chunk, and of all
// chunks together, which is the number of slots to plan for.
int in_flight(const RankActions& actions, int chunk);
int in_flight(const RankActions& actions);

// Micro-batches between the halves of their backward at once, of all chunks together.
int between_halves(const RankActions& actions);

// "F0 F1 B0 B1"; I and W for the halves of a backward, sendF, recvF, sendB, recvB for messages;
// chunks above 0 as "F0.1".
std::string to_text(const RankActions& actions);
RankActions from_text(std::string_view text);  // a user error for a word that is no action

}  // namespace orthant
