// What follows from the sum of the gradients' squares, shared by all backends: clipping, whether
// the step counts, and the loss scale of the next one.
#pragma once

#include <algorithm>
#include <cmath>

#include "ops/step_state.h"

namespace orthant {

// In place, before the update; `sum` is of gradients that are loss_scale too large.
inline void apply_norm(StepState& state, double sum) {
  state.grad_norm = std::sqrt(sum) / state.loss_scale;
  const double clip =
      state.max_norm > 0 ? std::min(1.0, state.max_norm / (state.grad_norm + 1e-6)) : 1.0;
  state.clip_factor = clip / state.loss_scale;
  state.skip = std::isfinite(state.grad_norm) ? 0 : 1;
  state.updates += 1 - state.skip;
  if (state.scale_window == 0) return;
  state.skipped += state.skip;
  state.good_steps = state.skip != 0 ? 0 : state.good_steps + 1;
  if (state.skip != 0) state.loss_scale = std::max(state.loss_scale / 2, kLeastLossScale);
  if (state.good_steps == state.scale_window) {
    state.loss_scale *= 2;
    state.good_steps = 0;
  }
}

}  // namespace orthant
