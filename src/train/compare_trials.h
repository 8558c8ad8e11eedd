// Trials of one small run against each other: a layout against one rank, and a training that went
// on from a checkpoint against one that did not stop. What is wrong is thrown (Fault::kRun).
#pragma once

#include <string>

#include "train/run_config.h"
#include "train/trial.h"

namespace orthant {

// What may differ between a layout and one rank.
struct LayoutTolerance {
  // In one step.
  struct Step {
    double loss = 0;      // nats
    double norm = 0;      // relative
    double gradient = 0;  // of each tensor, relative to its norm
  };
  Step first;  // at the same weights
  Step later;  // after updates by gradients that were rounded otherwise
};
LayoutTolerance layout_tolerance(const RunConfig& config);

// The same program trains the same bits.
bool repeats_bits(const RunConfig& config);
// So does one rank with the same micro-batches: no sum has another order.
bool keeps_bits(const RunConfig& config);

// `whole`: on one rank, which has a step in one micro-batch. Says how far they are apart. `runner`
// runs one rank.
std::string compare_with_one_rank(const Trial& found, const Trial& whole, const RankRunner& runner);
// `micros`: on one rank, in the micro-batches of the layout.
void compare_bits(const Trial& found, const Trial& micros, const RankRunner& runner);

// `again` began where `once` had saved.
void compare_resumed(const Trial& once, const Trial& again);

}  // namespace orthant
