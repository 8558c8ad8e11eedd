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

TEST(ClipFactor, AnOverflowHalvesTheLossScaleDownToItsLeast) {
  const double infinity = std::numeric_limits<double>::infinity();
  StepState state = after_clip({.loss_scale = 4, .scale_window = 3, .good_steps = 2}, infinity);
  EXPECT_EQ(state.loss_scale, 2);
  EXPECT_EQ(state.good_steps, 0);
  EXPECT_EQ(state.skipped, 1);
  EXPECT_EQ(state.updates, 0);
  state = after_clip(after_clip(state, infinity), infinity);
  EXPECT_EQ(state.loss_scale, kLeastLossScale);
  EXPECT_EQ(state.skipped, 3);
}

TEST(ClipFactor, GoodStepsInARowDoubleTheLossScale) {
  StepState state{.loss_scale = 1024, .scale_window = 3};
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(state.loss_scale, 1024);
    state = after_clip(state, 25.0 * 1024 * 1024);
    EXPECT_DOUBLE_EQ(state.grad_norm, 5);
  }
  EXPECT_EQ(state.loss_scale, 2048);
  EXPECT_EQ(state.good_steps, 0);
}

TEST(SquaredNorm, BlocksLieOnAGridOfTheirOwn) {
  constexpr std::int64_t kCount = 5000;
  constexpr std::int64_t kCut = 1000;  // inside a block
  for (const char* backend : {"ref", "cpu"}) {
    OpBed bed(backend);
    const Tensor g = bed.normal("g", {kCount}, kF32);
    // The squares before the cut, in a sum of their own, are one block's first part.
    const Tensor apart = bed.zeros({kNormLimbs}, DType::kI64);
    bed.run(SquaredNorm{.sum = apart, .g = g.flat(0, kCut)});
    bed.run(
        SquaredNorm{.sum = apart, .g = g.flat(kCut, kCount - kCut), .start = kCut % kNormBlock});
    NormLimbs limbs(apart.ptr<std::int64_t>(), kNormLimbs);
    std::array<std::int64_t, kNormLimbs> expected{};
    const std::span<const float> all(g.ptr<const float>(), kCount);
    for (std::int64_t first = 0; first < kCount; first += kNormBlock) {
      const std::int64_t end = std::min<std::int64_t>(first + kNormBlock, kCount);
      for (const auto& [begin, stop] : {std::pair(first, std::min(end, std::max(first, kCut))),
                                        std::pair(std::max(first, std::min(end, kCut)), end)}) {
        if (begin < stop) {
          add_exactly(expected,
                      block_square_sum<float>(all.subspan(static_cast<std::size_t>(begin),
                                                          static_cast<std::size_t>(stop - begin))));
        }
      }
    }
    carry_over(expected);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), limbs.begin())) << backend;
  }
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

// With betas of 0 the moments are the gradient and its square, exact before they are rounded.
AdamW rounding_adam(OpBed& bed, std::int64_t count, const Tensor& state) {
  return {.master = bed.zeros({count}, kF32),
          .m = bed.zeros({count}, DType::kBF16),
          .v = bed.zeros({count}, DType::kBF16),
          .value = {},
          .grad = bed.normal("grad", {count}, kF32),
          .step_state = state,
          .beta1 = 0,
          .beta2 = 0,
          .eps = 1e-8,
          .weight_decay = 0,
          .places = {.first = 0, .row = 37, .stride = 100, .offset = 11},
          .stream = 99};
}

TEST(AdamW, MomentsInBf16HaveTheSameBitsOnEveryBackendThreadAndPart) {
  constexpr std::int64_t kCount = 1000;
  OpBed bed("ref");
  const StepState state{.step = 3, .seed = 5, .lr = 1e-3, .updates = 1};
  const AdamW whole = rounding_adam(bed, kCount, bed.step_state(state));
  bed.run(whole);
  for (const int num_threads : {1, 3}) {
    OpBed other("cpu", num_threads);
    const AdamW adam = rounding_adam(other, kCount, other.step_state(state));
    std::int64_t first = 0;
    for (const std::int64_t count : {1, 64, 300, 635}) {
      AdamW part = adam;
      for (Tensor* tensor : {&part.master, &part.m, &part.v, &part.grad}) {
        *tensor = tensor->flat(first, count);
      }
      part.places.first = first;
      other.run(part);
      first += count;
    }
    EXPECT_EQ(values_of(adam.m), values_of(whole.m));
    EXPECT_EQ(values_of(adam.v), values_of(whole.v));
  }
}

TEST(AdamW, MomentsInBf16AreRoundedToTheRightMean) {
  constexpr std::int64_t kCount = 10000;
  OpBed bed("cpu");
  AdamW adam = rounding_adam(bed, kCount, bed.step_state({.step = 1, .seed = 1, .updates = 1}));
  const std::vector<double> same(kCount, 1 + 0x1p-7 / 4);  // a quarter of the way to the next
  bed.set(adam.grad, same);
  adam.places = {.first = 0, .row = kCount, .stride = kCount, .offset = 0};
  bed.run(adam);
  const std::vector<double> m = values_of(adam.m);
  const auto up = std::count(m.begin(), m.end(), 1 + 0x1p-7);
  EXPECT_EQ(up + std::count(m.begin(), m.end(), 1.0), kCount);
  EXPECT_NEAR(static_cast<double>(up) / kCount, 0.25, 0.02);
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
