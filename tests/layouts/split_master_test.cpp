// Masters that are split: the same bits on every layout, losses of whole masters, and two bytes a
// parameter less wherever they lie.
#include <gtest/gtest.h>

#include "tests/support/small_training.h"

namespace orthant::test {
namespace {

struct Layout {
  int tp = 1;
  int pp = 1;
  int dp = 1;
  std::int64_t micro_batch = 1;
};

Training whole_training(const char* family, const Layout& layout, int stage) {
  Case c{small(family)};
  c.compute = DType::kBF16;
  Training training = training_of(c, layout.tp, layout.pp, layout.dp, layout.micro_batch);
  training.config.layout.zero_stage = stage;
  return training;
}

Training split_training(const char* family, const Layout& layout, int stage) {
  Training training = whole_training(family, layout, stage);
  training.config.master = DType::kI16;
  return training;
}

Training offloaded(Training training, double fraction) {
  training.config.layout.offload = "optimizer";
  training.config.layout.offload_fraction = fraction;
  return training;
}

// gpt has a tied table: of two uses on one rank, and of a copy on either end of a pipeline.
TEST(SplitMasters, HaveTheSameBitsAtEveryStageOfZeroDepthAndPlace) {
  for (const char* family : {"gpt", "llama"}) {
    for (const int tp : {1, 2}) {
      SCOPED_TRACE(fmt::format("{} tp {}", family, tp));
      const Curve base = run(split_training(family, {tp, 1, 2, 1}, 0));
      expect_same_bits(base, run(split_training(family, {tp, 1, 2, 1}, 1)));
      expect_same_bits(base, run(split_training(family, {tp, 2, 2, 1}, 1)));
      expect_same_bits(base, run(offloaded(split_training(family, {tp, 2, 2, 1}, 0), 1)));
      expect_same_bits(base, run(offloaded(split_training(family, {tp, 1, 2, 1}, 1), 0.4)));
      const Curve sharded = run(split_training(family, {tp, 1, 2, 1}, 2));
      expect_same_bits(sharded, run(split_training(family, {tp, 2, 2, 1}, 3)));
      expect_same_bits(sharded, run(offloaded(split_training(family, {tp, 1, 2, 1}, 2), 1)));
      expect_same_bits(sharded, run(offloaded(split_training(family, {tp, 1, 2, 1}, 3), 0.7)));
    }
  }
}

TEST(SplitMasters, HaveTheSameBitsBesideMomentsAndGradientsInBf16) {
  const auto narrow = [](Training training) {
    training.config.moments = DType::kBF16;
    training.config.grads = DType::kBF16;
    return training;
  };
  const Curve base = run(narrow(split_training("llama", {1, 1, 2, 1}, 0)));
  expect_same_bits(base, run(narrow(split_training("llama", {1, 3, 2, 1}, 1))));
  expect_same_bits(base, run(offloaded(narrow(split_training("llama", {1, 1, 2, 1}, 1)), 1)));
}

// A device that works beside its ops has values in place, the host those that came to it. The
// formula backend stands in for a GPU; its workspaces are not those of the plan.
TEST(SplitMasters, HaveTheSameBitsWhereHostAndDeviceTakeTurns) {
  for (const DType moments : {DType::kF32, DType::kBF16}) {
    const auto curve_of = [&](Training training) {
      training.ops = "ref";
      training.config.target = Target::kCuda;
      training.config.moments = moments;
      Curve curve = train(training, InitSource(5), random_stream(training.config.model.vocab));
      EXPECT_EQ(curve.ledger_fault, "");
      return curve;
    };
    for (const int stage : {0, 1}) {
      const Curve base = curve_of(split_training("llama", {1, 1, 2, 1}, stage));
      for (const double fraction : {1.0, 0.4}) {
        SCOPED_TRACE(fmt::format("ZeRO-{}, {} of it", stage, fraction));
        expect_same_bits(
            base, curve_of(offloaded(split_training("llama", {1, 1, 2, 1}, stage), fraction)));
      }
    }
  }
}

// What differs is a unit in the last place of the few masters that lie halfway between two values.
TEST(SplitMasters, TrainAsWholeOnesDo) {
  for (const char* family : {"gpt", "bloom", "llama"}) {
    Training training = whole_training(family, {1, 1, 1, 1}, 0);
    training.steps = 12;
    const Curve whole = run(training);
    training.config.master = DType::kI16;
    const Curve split = run(training);
    for (std::size_t i = 0; i < whole.loss.size(); ++i) {
      EXPECT_NEAR(split.loss[i], whole.loss[i], 1e-3) << family << " step " << i + 1;
    }
    for (const auto& [name, weights] : whole.weights) {
      const std::vector<float>& others = split.weights.at(name);
      for (std::size_t i = 0; i < weights.size(); ++i) {
        ASSERT_NEAR(others[i], weights[i], 1e-3) << family << " " << name << " " << i;
      }
    }
  }
}

std::int64_t bytes_of(const MemoryPlan& plan, MemClass what) {
  return plan.by_class()[static_cast<std::size_t>(what)];
}

// On the device 2 of 12 bytes of a parameter's optimizer state, on the host the same.
TEST(SplitMasters, TakeTwoBytesAParameterLess) {
  const auto plan_of = [](const Training& training) {
    return dry_run(training.config, 0, 0).memory;
  };
  for (const int stage : {0, 3}) {
    const Layout layout{1, 1, 2, 1};
    const Training whole = whole_training("llama", layout, stage);
    const Training split = split_training("llama", layout, stage);
    const std::int64_t state = bytes_of(plan_of(whole), MemClass::kOptimizer);
    const std::int64_t kept = bytes_of(plan_of(split), MemClass::kOptimizer);
    EXPECT_NEAR(static_cast<double>(kept) / static_cast<double>(state), 10.0 / 12, 5e-3) << stage;
    EXPECT_EQ(plan_of(whole).device_bytes() - plan_of(split).device_bytes(), state - kept);
    const std::int64_t host = plan_of(offloaded(whole, 1)).host_bytes();
    const std::int64_t kept_host = plan_of(offloaded(split, 1)).host_bytes();
    // The buffers of gradients and values stay what they are.
    EXPECT_NEAR(static_cast<double>(host - kept_host), static_cast<double>(state - kept),
                5e-3 * static_cast<double>(state));
  }
}

}  // namespace
}  // namespace orthant::test
