// The optimizer step over a rank's segments: global norm, clip factor, AdamW. Nothing here reads a
// value back.
#pragma once

#include "ops/ops.h"
#include "params/param_store.h"

namespace orthant {

struct AdamWConfig {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
};

// norm_sum: i64 [kNormLimbs]. Afterwards step_state has grad_norm, clip_factor and skip.
void compute_clip_factor(Ops& ops, const ParamStore& store, const Tensor& norm_sum,
                         const Tensor& step_state);

AdamW update_of(const Segment& segment, const AdamWConfig& config, const Tensor& step_state);
// All that are updated on the device.
void update_parameters(Ops& ops, const ParamStore& store, const AdamWConfig& config,
                       const Tensor& step_state);

}  // namespace orthant
