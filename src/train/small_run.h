// SmallRun: the layout and options of a run on a model of the same family that trains in moments,
// with data and weights of its own.
#pragma once

#include <cstdint>
#include <string>

#include "params/param_source.h"
#include "train/run_config.h"

namespace orthant {

inline constexpr std::int64_t kSmallSteps = 3;

// What it reads and writes lies in `folder`.
RunConfig small_run(const RunConfig& run, const std::string& folder);

// The same training by the plain program: one rank, nothing split, sharded, recomputed or
// offloaded; a step in micro-batches of that many sequences.
RunConfig on_one_rank(const RunConfig& small, std::int64_t micro_batch);

// The tokens of all its steps.
void write_small_data(const RunConfig& small);

// Initial values, but that no bias is 0 and no norm is 1: what is added twice or left out is seen.
class UnevenSource final : public ParamSource {
 public:
  explicit UnevenSource(std::uint64_t seed) : initial_(seed), seed_(seed) {}
  void read(const ParamSpec& param, StateKind state, std::int64_t first,
            std::span<float> into) const override;

 private:
  InitSource initial_;
  std::uint64_t seed_;
};

}  // namespace orthant
