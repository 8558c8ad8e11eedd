// Trial: one training of a small run, from its start or from one of its checkpoints.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ckpt/manifest.h"
#include "data/token_source.h"
#include "params/param_source.h"
#include "train/plan_memory.h"
#include "train/rank.h"
#include "train/run_config.h"

namespace orthant {

// Runs `work` on every rank that a config asks for, or on the one that this process is.
using RankWork = std::function<void(Rank& rank, int r)>;
using RankRunner =
    std::function<void(const RankConfig& config, const RunPlan& plan, const RankWork& work)>;

struct Trial {
  static constexpr std::int64_t kSavedStep = 1;  // and the last

  RunConfig config;
  const TokenSource& data;
  const ParamSource& weights;
  std::string name;                    // of the folders of its gradients, in log.dir
  const Manifest* resumed = nullptr;   // null: from the start
  bool saves = true;                   // checkpoints
  std::vector<StepResult> steps = {};  // of rank 0, from first_step() on
  // Of rank 0: which ranks do not hold the same values and should, or the other way round.
  std::vector<std::string> strays_at_start = {};
  std::vector<std::string> strays_at_end = {};

  std::int64_t first_step() const { return resumed != nullptr ? resumed->step + 1 : 1; }
  std::string gradients_of(std::int64_t step) const;   // a folder: train/save.h
  std::string checkpoint_of(std::int64_t step) const;  // a folder

  void run(const RankRunner& runner);
};

// Of a trial on one rank: the gradient of one parameter in the first step, a part of it from each
// micro-batch.
std::vector<std::vector<float>> gradients_by_micro(const Trial& plain, const ParamSpec& spec,
                                                   const RankRunner& runner);

}  // namespace orthant
