// The ranks of a run: threads of this process, or this process is one of them. Each gets its share
// of the cores and its own memory.
#pragma once

#include <functional>
#include <string>

#include "comm/process_world.h"
#include "train/fit.h"
#include "train/rank.h"

namespace orthant {

// OpenMP threads of each of `ranks` ranks on this machine: they share the cores, at least one each.
int threads_per_rank(int ranks);

// Where no launcher has started this process, `world` is null.
inline bool has_first_rank(const ProcessWorld* world) {
  return world == nullptr || world->is_first();
}

inline Transport transport_of(ProcessWorld* world) {
  return world == nullptr ? Transport::kThreads : world->transport();
}

// Does `act`; where this process is a rank, all of them do, and all throw when one does.
void agree(ProcessWorld* world, const std::function<void()>& act);

// What libraries take of the GPUs of this run; nothing where it has none.
Libraries libraries_of(const RunConfig& config, ProcessWorld* world);

// What the hosts can give to the ranks, when all hosts are like this one; of a process on a GPU,
// when all GPUs are like its own. Throws a user error where a device that is asked for is not.
MemoryLimit memory_limit(const RunConfig& config, ProcessWorld* world);

// Builds rank r from plan.of(r) and runs body(rank, r) on it: every rank on a thread of its own, or
// the one that this process is. The first error is thrown again. `algorithms` as in OpsParts.
void run_ranks(const RankConfig& config, const RunPlan& plan, const std::string& ops,
               ProcessWorld* world, const std::function<void(Rank& rank, int r)>& body,
               Algorithms* algorithms = nullptr);

}  // namespace orthant
