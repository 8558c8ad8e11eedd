// fp16: training with a loss scale, and steps that are skipped when gradients overflow.
#include <cmath>

#include <gtest/gtest.h>

#include "tests/support/small_training.h"

namespace orthant::test {
namespace {

Training half_training(int tp, int pp, int dp) {
  Case c{small("llama")};
  c.compute = DType::kF16;
  return training_of(c, tp, pp, dp, 1);
}

TEST(Fp16, StaysNearTheLossOfFp32) {
  const Curve exact = run(training_of({small("llama")}, 1, 1, 1, 1));
  for (const auto& [tp, pp, dp] : {std::array{1, 1, 1}, {2, 2, 2}}) {
    const Curve curve = run(half_training(tp, pp, dp));
    for (std::size_t i = 0; i < exact.loss.size(); ++i) {
      EXPECT_NEAR(curve.loss[i], exact.loss[i], 5e-3) << "step " << i + 1;
      EXPECT_NEAR(curve.norm[i] / exact.norm[i], 1, 2e-2) << "step " << i + 1;
    }
  }
}

TEST(Fp16, HasTheSameBitsAtEveryDepthAndStage) {
  const Curve base = run(half_training(1, 1, 2));
  expect_same_bits(base, run(half_training(1, 3, 2)));
  Training whole = half_training(1, 1, 2);
  whole.config.layout.zero_stage = 0;
  expect_same_bits(base, run(whole));
}

// One rank, for as many steps as there are scales to start with.
std::vector<StepResult> results_from(double loss_scale, int steps) {
  const Training training = half_training(1, 1, 1);
  const std::vector<std::int32_t> stream = random_stream(training.config.model.vocab);
  std::vector<StepResult> results;
  ThreadWorld world(1, 60);
  run_rank_threads(world, [&](int r) {
    const auto device = make_host_device();
    const Backend backend{
        .device = *device,
        .ops = "cpu",
        .join_world = [&](const CommParts& parts) { return world.join(r, parts); },
        .num_threads = 1};
    Rank rank(training.config, backend, dry_run(training.config, r, 0).memory);
    rank.store().load(InitSource(5));
    StepState state = rank.kept();
    state.loss_scale = loss_scale;
    rank.keep(state);
    const StepData data(stream, training.config.layout, 0, 0, kBatch, training.config.seq_length);
    for (int step = 1; step <= steps; ++step) {
      results.push_back(rank.step(step, 1e-3, data.micros, static_cast<int>(data.micros.size())));
    }
  });
  return results;
}

TEST(Fp16, AnOverflowSkipsTheStepAndHalvesTheScale) {
  const std::vector<StepResult> results = results_from(0x1p40, 3);
  for (std::size_t i = 0; i < results.size(); ++i) {
    EXPECT_FALSE(results[i].is_finite);
    EXPECT_TRUE(results[i].can_go_on);
    EXPECT_EQ(results[i].loss_scale, 0x1p40 / (1 << i));
    EXPECT_EQ(results[i].skipped, static_cast<std::int64_t>(i) + 1);
    EXPECT_EQ(results[i].loss, results[0].loss);  // nothing was changed
  }
}

TEST(Fp16, TheScaleHardlyMattersWhereNothingOverflows) {
  const std::vector<StepResult> low = results_from(0x1p12, 2);
  const std::vector<StepResult> high = results_from(0x1p13, 2);
  EXPECT_TRUE(low[0].is_finite && high[0].is_finite);
  EXPECT_NEAR(low[1].loss, high[1].loss, 1e-5);
  EXPECT_LT(low[1].loss, low[0].loss);
}

}  // namespace
}  // namespace orthant::test
