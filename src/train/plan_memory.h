// What a whole run needs: the dry run of one rank of each kind, and the memory plan of every rank
// by it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "train/dry_run.h"
#include "train/run_config.h"

namespace orthant {

RankConfig rank_config(const RunConfig& config);

// Micro-batches of one evaluation on one rank; 0 when the run never evaluates.
int eval_micros(const RunConfig& config);

struct RunPlan {
  std::vector<DryRun> kinds;
  std::vector<int> kind_of;  // by world rank

  const DryRun& of(int rank) const {
    return kinds[static_cast<std::size_t>(kind_of[static_cast<std::size_t>(rank)])];
  }
  std::int64_t total_bytes() const;    // of all ranks
  std::int64_t fullest_bytes() const;  // of the fullest rank
};

// Ranks of one stage are alike but for the first of tp, which adds biases and counts what all hold.
RunPlan plan_run(const RankConfig& config, int num_eval_micros);

// Rows of the table of memory by class, one a kind of rank.
std::string memory_table(const RankConfig& config, const RunPlan& plan);

// Bytes that this host can give to a new process.
std::int64_t available_host_bytes();
// The same of the devices of a kind: "cuda" are all GPUs. Throws a user error where there is none.
std::int64_t available_bytes(std::string_view kind);

// Throws (Fault::kPlan) when thread ranks of one process do not fit; names the classes that fill
// the memory.
void require_fit(const RankConfig& config, const RunPlan& plan, std::int64_t available);

}  // namespace orthant
