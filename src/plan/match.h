// Matching: the calls of all ranks against each other, and their launch orders replayed until all
// ranks have ended or none can go on.
#pragma once

#include <string>
#include <vector>

#include "plan/timeline.h"
#include "train/plan_memory.h"

namespace orthant {

// Two ranks of a group that do not ask the same. The first named does what fewer ranks do.
struct Mismatch {
  int rank;
  std::string place;  // where in the rank's step: "B3 h.2"
  std::string what;   // the whole sentence
};

struct MatchResult {
  std::vector<Mismatch> mismatches;  // the first of each pair of ranks that disagree
  // Why some ranks can never go on; empty: all reach the end of the step.
  std::string deadlock;
  // The same where each communicator also runs its calls, messages included, strictly one after
  // another, as a stream does.
  std::string in_order_deadlock;

  bool is_whole() const { return mismatches.empty() && deadlock.empty(); }
};

MatchResult match(const World& world, const Classes& classes);
MatchResult match(const World& world);

// The dry run of a layout: memory of all ranks, and their step.
struct DryWorld {
  RunPlan memory;
  World world;
};
// On up to kMostRead ranks each rank's step is read from a dry run that equals its own. On more the
// first of dp stands for the others, which update the same number of elements in other portions.
inline constexpr int kMostRead = 64;
DryWorld dry_world(const RankConfig& config, int num_eval_micros);

}  // namespace orthant
