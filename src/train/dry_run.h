// The dry run: a Rank on the meta backend, through every phase that the run enters.
#pragma once

#include <vector>

#include "base/ledger.h"
#include "mem/memory_plan.h"
#include "train/rank.h"

namespace orthant {

struct DryRun {
  MemoryPlan memory;
  std::vector<Entry> step;  // the ledger of one step; `where` names are copies that live here
  std::vector<std::string> names;
};

// World rank `rank`; evaluates when eval_micros > 0. `programs` may be shared by many dry runs.
DryRun dry_run(const RankConfig& config, int rank, int eval_micros, Programs* programs = nullptr);

}  // namespace orthant
