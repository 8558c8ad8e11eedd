// The update: clipping and scaling of gradients, skipped steps, and AdamW step by step.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "ops/exact_sum.h"
#include "tests/support/close.h"

namespace orthant {
namespace {

constexpr DType kF32 = DType::kF32;

Tensor limbs_of(OpBed& bed, double sum_of_squares) {
  std::array<std::int64_t, kNormLimbs> limbs{};
  add_exactly(limbs, sum_of_squares);
  return bed.whole({kNormLimbs}, DType::kI64, limbs);
}

StepState after_clip(const StepState& before, double sum_of_squares) {
  OpBed bed("ref");
  const Tensor state = bed.step_state(before);
  bed.run(ClipFactor{.step_state = state, .sum = limbs_of(bed, sum_of_squares)});
  return state_of(state);
}

TEST(SquaredNorm, AddsTheSquaresOfAllTensors) {
  OpBed bed("ref");
  const Tensor sum = bed.zeros({kNormLimbs}, DType::kI64);
  const double g[] = {3, 4};
  bed.run(SquaredNorm{.sum = sum, .g = bed.floats({2}, kF32, g)});
  bed.run(SquaredNorm{.sum = sum, .g = bed.floats({1}, kF32, std::span(g, 1))});
  const Tensor state = bed.step_state({});
  bed.run(ClipFactor{.step_state = state, .sum = sum});
  EXPECT_DOUBLE_EQ(state_of(state).grad_norm, std::sqrt(34));
}

TEST(ClipFactor, ScalesDownToTheLargestNorm) {
  const StepState state = after_clip({.max_norm = 1, .updates = 4}, 25);
  EXPECT_DOUBLE_EQ(state.grad_norm, 5);
  EXPECT_DOUBLE_EQ(state.clip_factor, 1 / (5 + 1e-6));
  EXPECT_EQ(state.skip, 0);
  EXPECT_EQ(state.updates, 5);
}

TEST(ClipFactor, LeavesSmallNormsAlone) {
  EXPECT_EQ(after_clip({.max_norm = 1}, 0.25).clip_factor, 1);
  EXPECT_EQ(after_clip({.max_norm = 0}, 25).clip_factor, 1);
}

TEST(ClipFactor, TakesTheLossScaleOut) {
  const StepState state = after_clip({.loss_scale = 1024, .max_norm = 1}, 25.0 * 1024 * 1024);
  EXPECT_DOUBLE_EQ(state.grad_norm, 5);
  EXPECT_DOUBLE_EQ(state.clip_factor, 1 / (5 + 1e-6) / 1024);
}

TEST(ClipFactor, ANormThatIsNotFiniteSkipsTheStep) {
  const double infinity = std::numeric_limits<double>::infinity();
  const StepState state = after_clip({.max_norm = 1, .updates = 4}, infinity);
  EXPECT_EQ(state.skip, 1);
  EXPECT_EQ(state.updates, 4);
  EXPECT_EQ(state.grad_norm, infinity);
  // The next step is taken again.
  EXPECT_EQ(after_clip(state, 1).skip, 0);
}

constexpr std::int64_t N = 5;

struct Adam {
  Tensor state;
  AdamW args;
};

Adam make_adam(OpBed& bed, const StepState& state, bool has_value) {
  const Tensor step_state = bed.step_state(state);
  return {.state = step_state,
          .args = {.master = bed.normal("master", {N}, kF32),
                   .m = bed.zeros({N}, kF32),
                   .v = bed.zeros({N}, kF32),
                   .value = has_value ? bed.out({N}, DType::kBF16) : Tensor{},
                   .grad = bed.normal("grad", {N}, kF32),
                   .step_state = step_state,
                   .beta1 = 0.9,
                   .beta2 = 0.95,
                   .eps = 1e-8,
                   .weight_decay = 0.1}};
}

// The single-tensor loop of torch.optim.AdamW in float64.
TEST(AdamW, FollowsTheOrderOfPyTorch) {
  OpBed bed("ref");
  Adam adam = make_adam(bed, {.lr = 1e-2, .clip_factor = 0.5}, true);
  std::vector<double> param = values_of(adam.args.master);
  std::vector<double> exp_avg(N, 0.0);
  std::vector<double> exp_avg_sq(N, 0.0);
  const std::vector<double> grad = values_of(adam.args.grad);
  for (int step = 1; step <= 5; ++step) {
    StepState state = state_of(adam.state);
    state.updates = step;
    state.lr = 1e-2 / step;
    *adam.state.ptr<StepState>() = state;
    bed.run(adam.args);
    const double step_size = state.lr / (1 - std::pow(0.9, step));
    for (std::size_t i = 0; i < param.size(); ++i) {
      const double g = grad[i] * 0.5;
      param[i] *= 1 - state.lr * 0.1;
      exp_avg[i] += (g - exp_avg[i]) * (1 - 0.9);
      exp_avg_sq[i] = exp_avg_sq[i] * 0.95 + (1 - 0.95) * g * g;
      const double denom = std::sqrt(exp_avg_sq[i]) / std::sqrt(1 - std::pow(0.95, step)) + 1e-8;
      param[i] -= step_size * exp_avg[i] / denom;
    }
  }
  expect_close(values_of(adam.args.master), param, {N}, 1e-6, "master");
  expect_close(values_of(adam.args.m), exp_avg, {N}, 1e-6, "m");
  expect_close(values_of(adam.args.v), exp_avg_sq, {N}, 1e-6, "v");
  std::vector<double> rounded = values_of(adam.args.master);
  for (double& value : rounded) {
    value = static_cast<float>(BFloat16(static_cast<float>(value)));
  }
  expect_close(values_of(adam.args.value), rounded, {N}, 0, "value");
}

TEST(AdamW, ASkippedStepChangesNothing) {
  OpBed bed("ref");
  const Adam adam = make_adam(bed, {.lr = 1e-2, .skip = 1}, false);
  const double bad[] = {std::nan("")};
  bed.set(adam.args.grad.flat(2, 1), bad);
  const std::vector<double> before = values_of(adam.args.master);
  bed.run(adam.args);
  EXPECT_EQ(values_of(adam.args.master), before);
  EXPECT_EQ(values_of(adam.args.m), std::vector<double>(N, 0.0));
  EXPECT_EQ(values_of(adam.args.v), std::vector<double>(N, 0.0));
}

}  // namespace
}  // namespace orthant
