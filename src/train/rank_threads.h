// Ranks as threads of this process: each gets its share of the cores and its own memory.
#pragma once

#include <functional>
#include <string>

#include "train/plan_memory.h"
#include "train/rank.h"

namespace orthant {

// OpenMP threads of each of `ranks` ranks on this machine: they share the cores, at least one each.
int threads_per_rank(int ranks);

// Builds rank r from plan.of(r) on thread r and runs body(rank, r) on it. The first error is thrown
// again.
void run_ranks(const RankConfig& config, const RunPlan& plan, const std::string& ops,
               const std::function<void(Rank& rank, int r)>& body);

}  // namespace orthant
