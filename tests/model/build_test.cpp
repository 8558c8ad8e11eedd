// Which blocks lie where.
#include "model/build.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

namespace orthant {
namespace {

using Counts = std::vector<std::int64_t>;

// The slowest part, in FLOPs of a sequence.
double slowest(const ModelConfig& config, const Counts& counts, std::int64_t S) {
  ModelConfig none = config;
  none.layers = 0;
  ModelConfig one = config;
  one.layers = 1;
  const double head = sequence_flops(none, S);
  const double block = sequence_flops(one, S) - head;
  const double last = static_cast<double>(counts.back()) * block + head;
  const auto most = *std::max_element(counts.begin(), counts.end() - 1);
  return std::max(last, static_cast<double>(most) * block);
}

// The least that any split into three parts reaches; only the last may have no block.
double least_of_three(const ModelConfig& config, std::int64_t S) {
  double least = 1e300;
  for (std::int64_t a = 1; a < config.layers; ++a) {
    for (std::int64_t b = 1; a + b <= config.layers; ++b) {
      least = std::min(least, slowest(config, {a, b, config.layers - a - b}, S));
    }
  }
  return least;
}

TEST(Parts, EvenGivesTheFirstOnesMore) {
  const ModelConfig model = preset("gpt2-124m");
  EXPECT_EQ(blocks_per_part(model, {"even", {}}, 5, 1024), (Counts{3, 3, 2, 2, 2}));
  EXPECT_EQ(blocks_per_part(model, {"even", {}}, 1, 1024), (Counts{12}));
  EXPECT_EQ(blocks_per_part(model, {"", {4, 8}}, 2, 1024), (Counts{4, 8}));
}

TEST(Parts, BalancedMakesTheSlowestAsFastAsCanBe) {
  for (const char* name : {"gpt2-124m", "bloom-560m", "llama-7b", "qwen2-0.5b"}) {
    const ModelConfig model = preset(name);
    for (const std::int64_t S : {64, 1024}) {
      const Counts counts = blocks_per_part(model, {"balanced", {}}, 3, S);
      EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}), model.layers);
      EXPECT_NEAR(slowest(model, counts, S) / least_of_three(model, S), 1, 1e-12) << name;
    }
  }
}

// GPT-2's head is as much work as some five blocks.
TEST(Parts, AHeavyHeadIsAPartOfItsOwn) {
  EXPECT_EQ(blocks_per_part(preset("gpt2-124m"), {"balanced", {}}, 6, 1024),
            (Counts{3, 3, 2, 2, 2, 0}));
  EXPECT_EQ(blocks_per_part(preset("gpt2-124m"), {"balanced", {}}, 1, 1024), (Counts{12}));
}

TEST(Parts, ARangeFollowsThePartsBeforeIt) {
  const ChunkRange middle = chunk_range({3, 2, 0}, 1);
  EXPECT_EQ(middle.first_block, 3);
  EXPECT_EQ(middle.num_blocks, 2);
  EXPECT_FALSE(middle.has_embedding || middle.has_head);
  const ChunkRange last = chunk_range({3, 2, 0}, 2);
  EXPECT_EQ(last.first_block, 5);
  EXPECT_TRUE(last.has_head);
}

}  // namespace
}  // namespace orthant
