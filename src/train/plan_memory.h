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

// What is planned and run: a training with its evaluations, or an evaluation alone.
struct Job {
  RunConfig config;
  Purpose purpose = Purpose::kTrain;
  std::int64_t logits_bytes = 0;  // host memory of one process: logits that a file will have
  Transport transport = Transport::kThreads;
};
Job evaluation_of(const RunConfig& config, bool wants_logits);

RankConfig rank_config(const RunConfig& config);
RankConfig rank_config(const Job& job);

// Micro-batches of one evaluation on one rank; 0 when there is none.
int eval_micros(const RunConfig& config);
int eval_micros(const Job& job);

struct RunPlan {
  std::vector<DryMemory> kinds;
  std::vector<int> kind_of;  // by world rank

  const DryMemory& of(int rank) const {
    return kinds[static_cast<std::size_t>(kind_of[static_cast<std::size_t>(rank)])];
  }
  std::int64_t total_bytes() const;    // of all ranks
  std::int64_t fullest_bytes() const;  // of the fullest rank
};

// Ranks of one stage are alike but for the first of tp, which adds biases and counts what all hold,
// and the first of those that hold one key-value head, which counts that. `read` sees the step of
// one rank of each kind, in the order of RunPlan::kinds.
RunPlan plan_run(const RankConfig& config, int num_eval_micros, const StepReader& read = {});

// Rows of the table of memory by class, one a kind of rank; of many kinds the first, the fullest
// and the last.
std::string memory_table(const LayoutConfig& layout, const RunPlan& plan);

}  // namespace orthant
