// What recomputation saves is in the plan.
#include <gtest/gtest.h>

#include "tests/support/fixture.h"

namespace orthant::test {
namespace {

RankConfig config_of(const std::string& family, int tp) {
  RankConfig config;
  config.model = family_defaults(family);
  config.model.layers = 6;
  config.model.hidden = 64;
  config.model.heads = 4;
  config.model.vocab = 100;
  config.model.dropout = 0.1;
  complete(config.model);
  config.layout.ranks = tp;
  config.layout.tp = tp;
  config.layout.micro_batch = 2;
  config.seq_length = 64;
  config.max_micros = 2;
  return config;
}

std::int64_t activation_bytes(const RankConfig& config) {
  const ClassBytes bytes = dry_run(config, 0, 0).memory.by_class();
  return bytes[static_cast<std::size_t>(MemClass::kActivations)];
}

TEST(Recompute, EachKindSavesMoreThanTheOneBefore) {
  for (const char* family : {"gpt", "bloom", "llama"}) {
    for (const int tp : {1, 2}) {
      RankConfig config = config_of(family, tp);
      std::int64_t before = activation_bytes(config);
      for (const char* recompute : {"cheap", "attention", "block"}) {
        config.layout.recompute = recompute;
        const std::int64_t bytes = activation_bytes(config);
        EXPECT_LT(bytes, before) << family << ", tp " << tp << ", " << recompute;
        before = bytes;
      }
    }
  }
}

RankConfig in_halves(const char* schedule) {
  RankConfig config = config_of("llama", 1);
  config.layout.schedule = schedule;
  config.layout.pp = 3;
  config.layout.ranks = 3;
  config.layout.virtual_stages = schedule == std::string("zero_bubble_v") ? 2 : 1;
  config.max_micros = 6;
  return config;
}

// Parameters' gradients wait for the second half, but for blocks that keep their input alone.
TEST(Recompute, LeavesTheWeightHalfForLater) {
  for (const char* schedule : {"zero_bubble", "zero_bubble_v"}) {
    RankConfig config = in_halves(schedule);
    for (const std::string recompute : {"none", "cheap", "attention", "block"}) {
      config.layout.recompute = recompute;
      const DryRun run = dry_run(config, 1, 0);
      int early = 0;
      int late = 0;
      for (const Entry& entry : run.step) {
        if (entry.what != "linear_bwd_weight") continue;
        ++(entry.at.kind == 'I' ? early : late);
      }
      EXPECT_EQ(early > 0, recompute == "block") << schedule << ", " << recompute;
      EXPECT_EQ(late > 0, recompute != "block") << schedule << ", " << recompute;
    }
  }
}

// What was computed again is held for the micro-batches between their halves alone: of them the
// first stage has one, the last as many as are in flight.
TEST(Recompute, SavesWithZeroBubbleWhereForwardsWait) {
  RankConfig config = in_halves("zero_bubble");
  const auto bytes_of = [&config](const char* recompute, int stage) {
    config.layout.recompute = recompute;
    const ClassBytes bytes = dry_run(config, stage, 0).memory.by_class();
    return static_cast<double>(bytes[static_cast<std::size_t>(MemClass::kActivations)]);
  };
  for (const int stage : {0, 1, 2}) {
    const double all = bytes_of("none", stage);
    for (const char* recompute : {"cheap", "attention"}) {
      const double share = bytes_of(recompute, stage) / all;
      EXPECT_LE(share, stage == 0 ? 0.85 : stage == 1 ? 0.95 : 1.0) << recompute;
    }
  }
}

// T*C elements of f32 are 32 KiB.
TEST(Recompute, OfABlockKeepsItsInputAlone) {
  constexpr std::int64_t kInput = 2 * 64 * 64 * 4;
  RankConfig config = config_of("gpt", 2);
  config.layout.recompute = "block";
  const std::int64_t six = activation_bytes(config);
  config.layout.split_saved_inputs = true;
  const std::int64_t six_split = activation_bytes(config);
  config.model.layers = 10;
  EXPECT_EQ(activation_bytes(config) - six_split, 4 * kInput / 2);
  config.layout.split_saved_inputs = false;
  EXPECT_EQ(activation_bytes(config) - six, 4 * kInput);
  config.layout.sequence_parallel = true;
  const std::int64_t ten_rows_split = activation_bytes(config);
  config.model.layers = 6;
  EXPECT_EQ(ten_rows_split - activation_bytes(config), 4 * kInput / 2);
}

TEST(Recompute, OfTheFirstBlocksLiesBetween) {
  for (const char* recompute : {"cheap", "attention", "block"}) {
    RankConfig config = config_of("llama", 1);
    config.layout.recompute = recompute;
    std::int64_t before = activation_bytes(config);
    for (const std::int64_t blocks : {6, 4, 1}) {
      config.layout.recompute_blocks = blocks;
      const std::int64_t bytes = activation_bytes(config);
      if (blocks == 6) {
        EXPECT_EQ(bytes, before);
      } else {
        EXPECT_GT(bytes, before) << recompute << ", " << blocks;
      }
      before = bytes;
    }
  }
}

// On tp 4 a block keeps 10 + 24 / 4 rows of C where all have all rows, (10 + 24) / 4 where not.
TEST(SequenceParallel, SplitsWhatEveryTpRankWouldHold) {
  RankConfig config = config_of("gpt", 4);
  const auto of_four_blocks = [&config] {
    config.model.layers = 10;
    const std::int64_t ten = activation_bytes(config);
    config.model.layers = 6;
    return static_cast<double>(ten - activation_bytes(config));
  };
  const double whole = of_four_blocks();
  config.layout.sequence_parallel = true;
  EXPECT_LT(of_four_blocks(), 0.6 * whole);
}

}  // namespace
}  // namespace orthant::test
