#include <algorithm>
#include <cmath>

#include "ops/exact_sum.h"
#include "ops/ref/doubles.h"
#include "ops/ref/ref_ops.h"

namespace orthant {

void RefOps::exec(const SquaredNorm& a, const Tensor& /*workspace*/) {
  const NormLimbs sum(a.sum.ptr<std::int64_t>(), kNormLimbs);
  add_squares(sum, {a.g.ptr<const float>(), static_cast<std::size_t>(a.g.count())});
  carry_over(sum);
}

void RefOps::exec(const ClipFactor& a, const Tensor& /*workspace*/) {
  StepState& state = step_state_of(a.step_state);
  const ConstNormLimbs sum(a.sum.ptr<const std::int64_t>(), kNormLimbs);
  state.grad_norm = std::sqrt(exact_value(sum)) / state.loss_scale;
  const double clip =
      state.max_norm > 0 ? std::min(1.0, state.max_norm / (state.grad_norm + 1e-6)) : 1;
  state.clip_factor = clip / state.loss_scale;
  state.skip = std::isfinite(state.grad_norm) ? 0 : 1;
  state.updates += 1 - state.skip;
}

void RefOps::exec(const AdamW& a, const Tensor& /*workspace*/) {
  const StepState& state = step_state_of(a.step_state);
  Doubles master(a.master);
  Doubles m(a.m);
  Doubles v(a.v);
  const Doubles grad(a.grad);
  const auto t = static_cast<double>(state.updates);
  const double correction1 = 1 - std::pow(a.beta1, t);
  const double correction2 = 1 - std::pow(a.beta2, t);
  for (std::int64_t i = 0; state.skip == 0 && i < master.count(); ++i) {
    const double g = grad[i] * state.clip_factor;
    m[i] = a.beta1 * m[i] + (1 - a.beta1) * g;
    v[i] = a.beta2 * v[i] + (1 - a.beta2) * g * g;
    const double step = m[i] / correction1 / (std::sqrt(v[i] / correction2) + a.eps);
    master[i] -= state.lr * (step + a.weight_decay * master[i]);
  }
  master.store(a.master);
  m.store(a.m);
  v.store(a.v);
  master.round_to(DType::kF32);
  master.store(a.value);
}

}  // namespace orthant
