// How far the gradients of two trainings of one model are apart, tensor by tensor, and what a
// difference looks like.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "params/param_source.h"
#include "train/run_config.h"

namespace orthant {

struct TensorDifference {
  const ParamSpec* spec = nullptr;  // compare_all() sets it
  double expected = 0;              // norm
  double found = 0;                 // norm
  double error = 0;   // norm of the difference, relative to `expected`; infinite: not finite
  double factor = 1;  // the multiple of what is expected that is nearest to what is found
  double rest = 0;    // norm of what no multiple explains, relative to `expected`
};

TensorDifference compare(std::span<const float> expected, std::span<const float> found);

// All parameters; those that are the furthest apart come first.
std::vector<TensorDifference> compare_all(const std::vector<ParamSpec>& params,
                                          const ParamSource& expected, const ParamSource& found);

// What mistake makes such differences, as a clause; empty where they tell too little. `all` is of
// compare_all(); `allowed`: an error that is none.
std::string explain(const std::vector<TensorDifference>& all, double allowed,
                    const RunConfig& config);

// The same for one tensor by the part of it that each micro-batch adds: of dp ranks, the first
// one's first, then the second one's first.
std::string explain_by_micro(std::span<const float> expected, std::span<const float> found,
                             const std::vector<std::vector<float>>& micros, int dp);

std::vector<float> whole_tensor(const ParamSource& source, const ParamSpec& spec);

}  // namespace orthant
