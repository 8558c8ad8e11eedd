// Rates: how long ops, calls and copies take on a machine.
#pragma once

#include "plan/machine.h"
#include "plan/timeline.h"
#include "train/run_config.h"

namespace orthant {

// What a run computes with.
struct Work {
  DType compute = DType::kBF16;
  std::int64_t seq_length = 0;
  int ranks = 1;                  // that share the host where the machine's ranks do
  bool makes_gelu_inside = true;  // of products, where they are followed by it
  bool drops_attention = false;   // probabilities of it
  bool attends_exactly = false;   // by the kernel of fp32 in 16 bits too
};
Work work_of(const RunConfig& config);

// By the machine's measured rates. A product or an attention takes what those of nearest shape
// took, another op the time of its memory; a call what a ring takes, over the network where its
// group lies on several hosts.
Durations durations_on(const Machine& machine, const Work& work, const ProgramTables& tables);

// What durations_on() would need of the machine for these programs and is not measured; empty:
// nothing.
std::string missing_rate(const Machine& machine, const World& world);

// Stages' times in proportion to their FLOPs, and messages that take none.
Durations flop_durations(const ProgramTables& tables);

// Members that share a host, at most.
int most_on_one_host(const Group& group, int devices_per_host);

}  // namespace orthant
