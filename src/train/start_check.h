// Whether a run begins as it should: one forward and backward of the whole model on the first
// batch, before the first step, which changes nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "train/rank.h"
#include "train/run_config.h"

namespace orthant {

// A block's gradient norm may be this many times that of the block in the middle of all norms.
inline constexpr double kLargestNormRatio = 100;

struct StartInput {
  const RunConfig& config;
  bool is_fresh = true;  // initial weights; others were trained, and have any loss and spread
  std::int64_t step = 1;
  std::span<const HostMicro> micros;
};

struct LayerFacts {
  std::string name;          // "embed", "h.3", "final", "head"
  double gradient_norm = 0;  // of all its parameters, before clipping
  double weight_rms = 0;
  std::string weakest;      // the parameter with the smallest gradient norm ...
  double weakest_norm = 0;  // ... and that
};

struct StartFindings {
  double loss = 0;
  double gradient_norm = 0;
  std::vector<LayerFacts> layers = {};   // in the order of the model
  std::vector<std::string> faults = {};  // a sentence each
};

// All ranks together; all get the same.
StartFindings examine_start(Rank& rank, const StartInput& start);

// For people: a row a layer.
std::string start_table(const StartFindings& findings);

// All ranks together. Rank 0 writes the table to standard output and log.dir, and throws
// (Fault::kRun) where a fault was found; the others leave with it.
void check_start(Rank& rank, const StartInput& start);

}  // namespace orthant
