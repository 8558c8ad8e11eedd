// StepState: the values of one step, in one small tensor on the device. Ops read them there, so
// that no step branches on a value and a skipped step changes nothing.
#pragma once

#include <cstdint>

#include "mem/tensor.h"

namespace orthant {

struct StepState {
  // Written by the host before the step.
  std::int64_t step = 0;   // from 1
  std::uint64_t seed = 0;  // of dropout
  double lr = 0;
  double inv_tokens = 0;          // 1 / unmasked tokens of the global batch
  double loss_scale = 1;          // gradients are this much too large; 1 unless fp16. Kept as below
  double max_norm = 0;            // clip_grad; 0: no clipping
  std::int64_t scale_window = 0;  // good steps after which loss_scale doubles; 0: it stays
  // Written by ops during the step.
  double loss_sum = 0;  // nats over this rank's tokens
  double grad_norm = 0;
  double clip_factor = 1;
  std::int64_t skip = 0;  // 1: the norm is not finite, the update changes nothing
  // Kept from step to step; part of the checkpoint.
  std::int64_t updates = 0;     // steps that were not skipped: the t of Adam's bias correction
  std::int64_t good_steps = 0;  // since loss_scale was changed
  std::int64_t skipped = 0;     // steps whose gradients did not fit
};

// The loss scale of fp16 moves by powers of two: it halves when a step's gradients overflow and
// doubles after scale_window steps in which none did (Micikevicius et al., arXiv:1710.03740).
inline constexpr double kFirstLossScale = 65536;
inline constexpr double kLeastLossScale = 1;
inline constexpr std::int64_t kScaleWindow = 2000;

inline Shape step_state_shape() {
  return {static_cast<std::int64_t>(sizeof(StepState))};
}  // a u8 tensor

}  // namespace orthant
