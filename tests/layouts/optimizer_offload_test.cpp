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

// As a GPU does it; the formula backend stands in for one, in its own precision.
Training shared(Training training) {
  training.ops = "ref";
  training.config.target = Target::kCuda;
  return training;
}

TEST(OptimizerOffload, ADeviceThatWorksBesideItsOpsUpdatesEverySecondPiece) {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    for (const DType moments : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(fmt::format("{}, moments in {}", name_of(compute), name_of(moments)));
      Case c{small("llama")};
      c.compute = compute;
      Training training = shared(training_of(c, 1, 1, 2, 1));
      training.config.moments = moments;
      // Its workspaces are those of the host, so that the plan of the work arena is not its own.
      const auto curve_of = [](const Training& one) {
        Curve curve = train(one, InitSource(5), random_stream(one.config.model.vocab));
        EXPECT_EQ(curve.ledger_fault, "");
        return curve;
      };
      const Curve base = curve_of(training);
      expect_same_bits(base, curve_of(offloaded(training, 1)));
      expect_same_bits(base, curve_of(offloaded(training, 0.4)));
    }
  }
}

// What comes for a piece of one side starts before the work on the piece of the other side before
// it, so that it does not stand behind what that has to put back.
TEST(OptimizerOffload, TwoSidesTakeTurnsAndFetchAhead) {
  const Training training = offloaded(shared(training_of({small("llama")}, 1, 1, 1, 1)), 1);
  const DryRun plan = dry_run(training.config, 0, 0);
  std::vector<Entry> works;
  for (const Entry& entry : plan.step) {
    const bool is_work = entry.lane == Lane::kHost || entry.lane == Lane::kBeside;
    if (is_work && !entry.starts.done()) works.push_back(entry);
  }
  ASSERT_GT(works.size(), 8U);
  for (std::size_t i = 0; i < works.size(); ++i) {
    EXPECT_EQ(works[i].lane, i % 3 == 0 ? Lane::kHost : Lane::kBeside) << i;
    if (i == 0) continue;
    EXPECT_LT(works[i].after[0].id, works[i - 1].starts.id) << i;
  }
}

// A piece is updated when its gradient has come, and leaves when it is updated. All of it starts
// before the forward, which waits for each unit when it comes to it.
TEST(OptimizerOffload, RunsBehindTheNextForward) {
  const Training training = offloaded(training_of({small("llama")}, 1, 1, 1, 1), 1);
  const DryRun plan = dry_run(training.config, 0, 0);
  std::vector<Token> out;
  std::vector<Token> updates;
  std::size_t num_in = 0;
  int units = 0;
  bool in_waits = false;
  for (const Entry& entry : plan.step) {
    const bool is_beside =
        entry.lane == Lane::kHost || entry.lane == Lane::kCopyIn || entry.lane == Lane::kCopyOut;
    const bool begins_waiting = is_beside && entry.starts.done() && entry.at.kind == 'F';
    if (begins_waiting && !in_waits) ++units;
    in_waits = begins_waiting;
    if (!is_beside || entry.starts.done() || entry.where == "update") continue;
    EXPECT_EQ(entry.at.kind, 0);
    if (entry.lane == Lane::kCopyOut) {
      out.push_back(entry.starts);
    } else if (entry.lane == Lane::kHost) {
      EXPECT_EQ(entry.after[0], out.at(updates.size()));
      EXPECT_GT(entry.cost.bytes, 0);
      updates.push_back(entry.starts);
    } else {
      EXPECT_EQ(entry.after[0], updates.at(num_in));
      ++num_in;
    }
  }
  EXPECT_EQ(units, 6);  // embedding, blocks, final norm with head
  EXPECT_GT(num_in, 6U);
  EXPECT_EQ(out.size(), num_in);
  EXPECT_EQ(updates.size(), num_in);
}

// The host holds the state and two pieces, not gradients and weights.
TEST(OptimizerOffload, HoldsNoGradientsOnTheHost) {
  Training training = offloaded(training_of({small("llama")}, 1, 1, 1, 1), 1);
  training.config.compute = DType::kBF16;
  training.config.model.layers = 40;
  const MemoryPlan plan = dry_run(training.config, 0, 0).memory;
  const auto gradients = plan.by_class()[static_cast<std::size_t>(MemClass::kGradients)];
  const auto state = 3 * gradients;
  EXPECT_GE(plan.host_bytes(), state);
  EXPECT_LT(plan.host_bytes(), state + gradients / 10);
}

// Where dp ranks update shards, weights are gathered behind the work of the unit before, but for
// those of the first.
TEST(OptimizerOffload, ShardsAreGatheredBehindTheWorkOfTheUnitBefore) {
  for (const int stage : {1, 2}) {
    Training training = offloaded(training_of({small("llama")}, 1, 1, 2, 1), 1);
    training.config.layout.zero_stage = stage;
    const DryRun plan = dry_run(training.config, 0, 0);
    int gathers = 0;
    for (auto start = plan.step.begin(); start != plan.step.end(); ++start) {
      if (start->what != "all_gather" || start->starts.done()) continue;
      const auto wait = std::find_if(start, plan.step.end(), [&](const Entry& entry) {
        return entry.waits_for == start->starts;
      });
      const auto products =
          std::count_if(start, wait, [](const Entry& entry) { return entry.what == "linear_fwd"; });
      if (++gathers > 2) {                  // behind the embedding lies no product
        EXPECT_GE(products, 4) << gathers;  // a block, or more
      }
    }
    EXPECT_EQ(gathers, 6) << "ZeRO-" << stage;
  }
}

}  // namespace
}  // namespace orthant::test
