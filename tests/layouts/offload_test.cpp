// Stash offload: what leaves for the host, when it comes back, and that no bit changes.
#include <gtest/gtest.h>

#include "tests/support/small_training.h"

namespace orthant::test {
namespace {

Training offloading(const std::string& family, int tp, int pp, double fraction) {
  Case c{small(family)};
  c.model.layers = 8;
  c.model.dropout = 0.1;
  Training training = training_of(c, tp, pp, 1, 1);
  training.config.layout.offload = "stash";
  training.config.layout.offload_fraction = fraction;
  return training;
}

MemoryPlan plan_of(const Training& training) {
  return dry_run(training.config, 0, 2).memory;
}

std::int64_t activations(const MemoryPlan& plan) {
  return plan.by_class()[static_cast<std::size_t>(MemClass::kActivations)];
}

TEST(StashOffload, LeavesAFewWindowsOnTheDevice) {
  Training training = offloading("gpt", 1, 2, 1);
  const MemoryPlan all = plan_of(training);
  training.config.layout.offload_fraction = 0.5;
  const MemoryPlan half = plan_of(training);
  training.config.layout.offload = "none";
  const MemoryPlan none = plan_of(training);
  EXPECT_EQ(none.host_bytes(), 0);
  EXPECT_GT(half.host_bytes(), 0);
  EXPECT_GT(all.host_bytes(), half.host_bytes());
  EXPECT_LT(activations(half), activations(none));
  EXPECT_LT(activations(all), activations(half));
  EXPECT_GT(all.host_bytes(), activations(none) - activations(all));
}

// A window costs what a layer leaves: more layers cost host memory alone.
TEST(StashOffload, TakesNoDeviceMemoryForMoreLayers) {
  Training training = offloading("llama", 1, 1, 1);
  const MemoryPlan eight = plan_of(training);
  training.config.model.layers = 20;
  EXPECT_EQ(activations(plan_of(training)), activations(eight));
}

// In backward each copy in begins before the work of the layer above and ends after it.
TEST(StashOffload, BringsALayerBackBesideTheWorkOfTheOneAbove) {
  const DryRun run = dry_run(offloading("gpt", 1, 1, 1).config, 0, 0);
  int in_flight = 0;
  int hidden = 0;
  int num_ops = 0;
  for (const Entry& entry : run.step) {
    if (entry.lane == Lane::kCompute) ++num_ops;
    if (entry.lane != Lane::kCopyIn) continue;
    if (!entry.starts.done()) {
      ++in_flight;
      num_ops = 0;
    } else {
      --in_flight;
      if (num_ops > 5) ++hidden;
    }
    EXPECT_LE(in_flight, 2);
  }
  EXPECT_EQ(in_flight, 0);
  EXPECT_EQ(hidden, 8 * 8);  // layers and micro-batches; the first waits for the head's work
}

TEST(StashOffload, ChangesNoBit) {
  for (const char* family : {"gpt", "llama"}) {
    SCOPED_TRACE(family);
    Training training = offloading(family, 2, 2, 1);
    training.config.layout.offload = "none";
    const Curve base = run(training);
    training.config.layout.offload = "stash";
    for (const double fraction : {1.0, 0.6, 0.0}) {
      training.config.layout.offload_fraction = fraction;
      expect_same_bits(base, run(training));
    }
    training.config.layout.offload_fraction = 0.8;
    for (const auto& [schedule, parts] :
         {std::pair("zero_bubble", 1), {"zero_bubble_v", 2}, {"interleaved", 2}}) {
      SCOPED_TRACE(schedule);
      Training other = training;
      other.config.layout.schedule = schedule;
      other.config.layout.virtual_stages = parts;
      expect_same_bits(base, run(other));
    }
    for (const char* recompute : {"cheap", "attention"}) {
      training.config.layout.offload_fraction = 1;
      training.config.layout.recompute = recompute;
      training.config.layout.recompute_blocks = 2;
      expect_same_bits(base, run(training));
    }
  }
}

}  // namespace
}  // namespace orthant::test
