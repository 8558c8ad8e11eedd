// ZeRO: what each stage shards changes no bit where sums have the same order, and what is sharded
// travels behind the work of another unit.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/small_training.h"

namespace orthant::test {
namespace {

struct Layout {
  int tp = 1;
  int pp = 1;
  int dp = 2;
  std::int64_t micro_batch = 1;
};

Training zero_training(const Case& c, const Layout& layout, int stage) {
  Training training = training_of(c, layout.tp, layout.pp, layout.dp, layout.micro_batch);
  training.config.layout.zero_stage = stage;
  return training;
}

// What is rounded otherwise is one weight in f32, and in bf16 now and then a whole step of it.
void expect_near_curves(const Curve& a, const Curve& b, DType compute) {
  for (std::size_t i = 0; i < a.loss.size(); ++i) {
    EXPECT_NEAR(a.loss[i] / b.loss[i], 1, compute == DType::kF32 ? 1e-6 : 1e-4);
  }
}

// 0 and 1 add over dp once a step, 2 and 3 once a micro-batch.
void expect_stages_agree(const Case& c, const Layout& layout) {
  SCOPED_TRACE(fmt::format("tp {} pp {} dp {}", layout.tp, layout.pp, layout.dp));
  const Curve whole = run(zero_training(c, layout, 0));
  expect_same_bits(whole, run(zero_training(c, layout, 1)));
  const Curve sharded = run(zero_training(c, layout, 2));
  expect_same_bits(sharded, run(zero_training(c, layout, 3)));
  Training held = zero_training(c, layout, 3);
  held.config.layout.zero_gather = "step";
  expect_same_bits(sharded, run(held));
  if (layout.micro_batch * layout.dp == kBatch) {
    expect_same_bits(whole, sharded);
  } else {
    expect_near_curves(whole, sharded, c.compute);
  }
}

TEST(ZeroStages, AgreeOnGptWithATiedTable) {
  Case c{small("gpt")};
  c.model.dropout = 0.1;
  for (const Layout& layout : {Layout{1, 1, 2, 1}, {1, 1, 8, 1}, {1, 2, 2, 4}, {2, 2, 2, 1}}) {
    expect_stages_agree(c, layout);
  }
}
TEST(ZeroStages, AgreeOnLlamaInBf16) {
  Case c{small("llama")};
  c.compute = DType::kBF16;
  for (const Layout& layout : {Layout{1, 1, 4, 1}, {1, 4, 2, 1}, {2, 1, 2, 4}}) {
    expect_stages_agree(c, layout);
  }
}

TEST(ZeroStages, AgreeOnAModelWhoseUnitsAreSmallerThanTheirShards) {
  Case c{small("bloom")};
  c.model.hidden = 12;
  c.model.heads = 3;
  c.model.layers = 1;
  expect_stages_agree(c, {1, 1, 4, 1});
}

// What a schedule or a depth may not change, it may not change at stages 2 and 3 either.
TEST(ZeroStages, AreTheSameAtEveryDepthAndSchedule) {
  const Case c{small("gpt")};
  for (const int stage : {2, 3}) {
    const Curve base = run(zero_training(c, {1, 1, 2, 1}, stage));
    for (const int pp : {2, 3, 4}) {
      for (const char* schedule : {"gpipe", "1f1b"}) {
        SCOPED_TRACE(fmt::format("zero {} pp {} {}", stage, pp, schedule));
        Training training = zero_training(c, {1, pp, 2, 1}, stage);
        training.config.layout.schedule = schedule;
        expect_same_bits(base, run(training));
      }
    }
  }
}

// Several parts on a rank; in a V both uses of a tied table are on the first.
TEST(ZeroStages, AreTheSameWithSeveralPartsOnARankAndSplitBackward) {
  const Case c{small("gpt")};
  for (const int stage : {2, 3}) {
    const Curve base = run(zero_training(c, {1, 1, 2, 1}, stage));
    for (const auto& [schedule, parts] :
         {std::pair("interleaved", 2), {"zero_bubble", 1}, {"zero_bubble_v", 2}}) {
      SCOPED_TRACE(fmt::format("zero {} {}", stage, schedule));
      Training training = zero_training(c, {1, 2, 2, 1}, stage);
      training.config.layout.schedule = schedule;
      training.config.layout.virtual_stages = parts;
      expect_same_bits(base, run(training));
    }
  }
}

// Moments in bf16 are rounded by the place of an element in the whole tensor.
TEST(RoundedMoments, HaveTheSameBitsAtEveryStageAndDepth) {
  const Case c{small("llama")};
  const auto rounded = [&](const Layout& layout, int stage) {
    Training training = zero_training(c, layout, stage);
    training.config.moments = DType::kBF16;
    return run(training);
  };
  for (const int tp : {1, 2}) {
    const Curve base = rounded({tp, 1, 2, 1}, 0);
    expect_same_bits(base, rounded({tp, 1, 2, 1}, 1));
    expect_same_bits(base, rounded({tp, 3, 2, 1}, 1));
    expect_near_curves(base, rounded({tp, 1, 2, 1}, 3), DType::kF32);
    const Curve exact = run(zero_training(c, {tp, 1, 2, 1}, 0));
    EXPECT_NE(base.weights, exact.weights);
    for (std::size_t i = 0; i < exact.loss.size(); ++i) {
      EXPECT_NEAR(base.loss[i], exact.loss[i], 1e-2);
    }
  }
}

// Gradients added up and reduced in bf16.
TEST(GradientsInBf16, AreTheSameBitsAtEveryDepthAndHalfTheMemory) {
  const Case c{small("gpt")};
  const auto narrow = [&](const Layout& layout, int stage) {
    Training training = zero_training(c, layout, stage);
    training.config.grads = DType::kBF16;
    return training;
  };
  const Curve base = run(narrow({1, 1, 2, 1}, 0));
  expect_same_bits(base, run(narrow({1, 1, 2, 1}, 1)));
  expect_same_bits(base, run(narrow({1, 3, 2, 1}, 1)));
  const Curve sharded = run(narrow({1, 1, 2, 1}, 2));
  expect_same_bits(sharded, run(narrow({1, 2, 2, 1}, 3)));
  const Curve exact = run(zero_training(c, {1, 1, 2, 1}, 0));
  for (std::size_t i = 0; i < exact.loss.size(); ++i) {
    EXPECT_NEAR(base.loss[i], exact.loss[i], 1e-2);
    EXPECT_NEAR(sharded.loss[i], exact.loss[i], 1e-2);
  }
  const auto gradients = [](const Training& training) {
    return dry_run(training.config, 0, 0)
        .memory.by_class()[static_cast<std::size_t>(MemClass::kGradients)];
  };
  EXPECT_NEAR(static_cast<double>(gradients(narrow({1, 1, 2, 1}, 0))) /
                  static_cast<double>(gradients(zero_training(c, {1, 1, 2, 1}, 0))),
              0.5, 0.01);
}

bool is_block(std::string_view where) {
  return where.substr(0, 2) == "h.";
}

bool is_work(const Entry& entry) {
  return entry.what.substr(0, 6) == "linear" || entry.what.substr(0, 9) == "embedding";
}

// Of such calls that start in a block, those that no other layer's work hides: the gradients of one
// leave behind the next one's work, the values of the next come behind its own.
int calls_in_the_open(std::span<const Entry> entries, std::string_view what) {
  int bad = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Entry& start = entries[i];
    if (start.what != what || start.starts.done() || !is_block(start.where)) continue;
    bool works = false;
    for (std::size_t j = i + 1; j < entries.size() && entries[j].waits_for != start.starts; ++j) {
      works = works || is_work(entries[j]);
    }
    if (!works) ++bad;
  }
  return bad;
}

int count(std::span<const Entry> entries, std::string_view what) {
  return static_cast<int>(std::count_if(entries.begin(), entries.end(), [what](const Entry& e) {
    return e.what == what && !e.starts.done();
  }));
}

TEST(ZeroOverlap, TransfersOfBlocksLieBehindTheWorkOfOthers) {
  Training training = zero_training({small("llama")}, {1, 1, 2, 1}, 3);
  training.config.model.layers = 6;
  const DryRun run = dry_run(training.config, 0, 0);
  // 6 blocks, an embedding and a head; 4 micro-batches: forward and backward meet at both ends.
  EXPECT_EQ(count(run.step, "reduce_scatter"), 8 * 4);
  EXPECT_EQ(count(run.step, "all_gather"), 8 * 4 * 2 - 4 * 4 + 2);
  EXPECT_EQ(calls_in_the_open(run.step, "reduce_scatter"), 0);
  EXPECT_EQ(calls_in_the_open(run.step, "all_gather"), 0);
}

TEST(ZeroOverlap, ValuesHeldForAStepAreGatheredOnce) {
  Training training = zero_training({small("llama")}, {1, 1, 2, 1}, 3);
  training.config.layout.zero_gather = "step";
  EXPECT_EQ(count(dry_run(training.config, 0, 0).step, "all_gather"), 6);
}

TEST(ZeroMemory, EachStageTakesLess) {
  Case c{small("llama")};
  c.model.layers = 12;
  c.compute = DType::kBF16;
  std::int64_t before = 0;
  for (const int stage : {0, 1, 2, 3}) {
    const DryRun plan = dry_run(zero_training(c, {1, 1, 8, 1}, stage).config, 0, 0);
    const std::int64_t bytes = plan.memory.device_bytes();
    EXPECT_TRUE(stage == 0 || bytes < before) << "stage " << stage << " takes " << bytes;
    before = bytes;
  }
}

TEST(ZeroMemory, AGroupOfOneShardsNothing) {
  const Case c{small("gpt")};
  const MemoryPlan whole = dry_run(zero_training(c, {1, 2, 1, 1}, 0).config, 0, 0).memory;
  EXPECT_EQ(dry_run(zero_training(c, {1, 2, 1, 1}, 3).config, 0, 0).memory, whole);
}

}  // namespace
}  // namespace orthant::test
