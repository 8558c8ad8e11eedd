// Optimizer offload: the same bits, from the host's memory, with the update behind the next
// forward.
#include <gtest/gtest.h>

#include "tests/support/small_training.h"

namespace orthant::test {
namespace {

Training offloaded(Training training, double fraction) {
  training.config.layout.offload = "optimizer";
  training.config.layout.offload_fraction = fraction;
  return training;
}

TEST(OptimizerOffload, ChangesNoBit) {
  for (const char* family : {"gpt", "llama"}) {
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      Case c{small(family)};
      c.compute = compute;
      for (const int stage : {0, 1, 2, 3}) {
        SCOPED_TRACE(fmt::format("{} {} zero {}", family, name_of(compute), stage));
        Training training = training_of(c, 1, 2, 2, 1);
        training.config.layout.zero_stage = stage;
        const Curve base = run(training);
        expect_same_bits(base, run(offloaded(training, 1)));
        if (stage == 1) expect_same_bits(base, run(offloaded(training, 0.4)));
      }
    }
  }
}

TEST(OptimizerOffload, ChangesNoBitOfMomentsInBf16AndOfTensorParallelism) {
  Training training = training_of({small("llama")}, 2, 1, 1, 2);
  training.config.moments = DType::kBF16;
  expect_same_bits(run(training), run(offloaded(training, 1)));
}

TEST(OptimizerOffload, TakesMemoryOfTheHostInsteadOfTheDevice) {
  Training training = training_of({small("llama")}, 1, 1, 1, 1);
  training.config.compute = DType::kBF16;
  const MemoryPlan none = dry_run(training.config, 0, 0).memory;
  const MemoryPlan half = dry_run(offloaded(training, 0.5).config, 0, 0).memory;
  const MemoryPlan all = dry_run(offloaded(training, 1).config, 0, 0).memory;
  EXPECT_EQ(none.host_bytes(), 0);
  EXPECT_LT(all.device_bytes(), half.device_bytes());
  EXPECT_LT(half.device_bytes(), none.device_bytes());
  EXPECT_LT(half.host_bytes(), all.host_bytes());
  const auto optimizer = static_cast<std::size_t>(MemClass::kOptimizer);
  const std::int64_t small_tensors = none.by_class()[optimizer] / 50;
  EXPECT_LT(all.by_class()[optimizer], small_tensors);
}

// Between the update of a block and the use of its weights lies the work of the one before it.
TEST(OptimizerOffload, WeightsComeBackBehindTheWorkOfTheUnitBefore) {
  Training training = offloaded(training_of({small("llama")}, 1, 1, 1, 1), 1);
  const DryRun plan = dry_run(training.config, 0, 0);
  int copies = 0;
  for (std::size_t i = 0; i < plan.step.size(); ++i) {
    const Entry& start = plan.step[i];
    if (start.what != "copy_in" || start.starts.done()) continue;
    ++copies;
    EXPECT_EQ(plan.step[i - 1].lane, Lane::kHost);
  }
  EXPECT_EQ(copies, 6);  // a unit each: embedding, blocks, head
}

}  // namespace
}  // namespace orthant::test
