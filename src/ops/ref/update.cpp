#include <algorithm>
#include <cmath>
#include <utility>

#include "ops/clip.h"
#include "ops/exact_sum.h"
#include "ops/random_rounding.h"
#include "ops/ref/doubles.h"
#include "ops/ref/ref_ops.h"
#include "ops/split_master.h"

namespace orthant {
namespace {

// `shift`: which bits of an element's word decide.
void store_moments(const AdamW& a, const StepState& state, const Doubles& values, const Tensor& to,
                   int shift) {
  if (to.dtype != DType::kBF16) return values.store(to);
  const std::uint64_t stream = rounding_stream(a.stream, state.step);
  for (std::int64_t i = 0; i < values.count(); ++i) {
    const auto element = static_cast<std::uint64_t>(a.places.of(i));
    const std::uint32_t word = rounding_word(state.seed, stream, element);
    to.ptr<BFloat16>()[i] = round_by_chance(static_cast<float>(values[i]), word >> shift);
  }
}

Doubles masters_of(const AdamW& a) {
  if (!a.is_split()) return Doubles(a.master);
  Doubles masters(a.master.count());
  for (std::int64_t i = 0; i < masters.count(); ++i) {
    masters[i] =
        joined_master(a.value.ptr<const BFloat16>()[i], a.master.ptr<const std::int16_t>()[i]);
  }
  return masters;
}

void store_masters(const AdamW& a, Doubles masters) {
  masters.round_to(DType::kF32);
  masters.store(a.value);
  if (!a.is_split()) return masters.store(a.master);
  for (std::int64_t i = 0; i < masters.count(); ++i) {
    a.master.ptr<std::int16_t>()[i] = master_remainder(static_cast<float>(masters[i]));
  }
}

}  // namespace

void RefOps::exec(const SquaredNorm& a, const Tensor& /*workspace*/) {
  const NormLimbs sum(a.sum.ptr<std::int64_t>(), kNormLimbs);
  const auto add = [&](auto element) {
    const std::span<const decltype(element)> g(a.g.ptr<const decltype(element)>(),
                                               static_cast<std::size_t>(a.g.count()));
    add_squares(sum, g.subspan(add_first_squares(sum, g, a.start)));
  };
  if (a.g.dtype == DType::kBF16) {
    add(BFloat16{});
  } else {
    add(float{});
  }
  carry_over(sum);
}

void RefOps::exec(const ClipFactor& a, const Tensor& /*workspace*/) {
  StepState& state = step_state_of(a.step_state);
  const ConstNormLimbs sum(a.sum.ptr<const std::int64_t>(), kNormLimbs);
  apply_norm(state, exact_value(sum));
}

void RefOps::exec(const AdamW& a, const Tensor& /*workspace*/) {
  const StepState& state = step_state_of(a.step_state);
  if (a.is_split() && state.skip != 0) return;
  Doubles master = masters_of(a);
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
  if (state.skip == 0) {
    store_moments(a, state, m, a.m, 0);
    store_moments(a, state, v, a.v, 16);
  }
  store_masters(a, std::move(master));
}

}  // namespace orthant
