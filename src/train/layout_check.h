// Whether a layout trains what one rank trains: tried on a small model of the same family, before
// the run's first step.
#pragma once

#include <string>

#include "comm/process_world.h"
#include "train/run_config.h"
#include "train/trial.h"

namespace orthant {

// All ranks together: trains the small run with `runner`, goes on from its checkpoint, and compares
// both with one rank, whose program rank 0 runs by itself. Says what it has found, or throws it
// (Fault::kRun) when it is a difference. Its files lie in checkpoint.dir, or in log.dir where that
// is empty, and are gone afterwards.
std::string check_layout(const RunConfig& run, ProcessWorld* world, const RankRunner& runner);

}  // namespace orthant
