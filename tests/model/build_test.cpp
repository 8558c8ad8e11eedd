// Which blocks lie where.
#include "model/build.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

namespace orthant {
namespace {

using Counts = std::vector<std::int64_t>;

// The slowest rank, in FLOPs of a sequence.
double slowest(const ModelConfig& config, const Placement& placement, const Counts& counts,
               std::int64_t S) {
  ModelConfig none = config;
  none.layers = 0;
  ModelConfig one = config;
  one.layers = 1;
  const double head = sequence_flops(none, S);
  const double block = sequence_flops(one, S) - head;
  std::vector<double> loads(static_cast<std::size_t>(placement.num_ranks()), 0.0);
  const int last = placement.num_parts() - 1;
  for (int part = 0; part <= last; ++part) {
    double& load = loads[static_cast<std::size_t>(placement.at(part).rank)];
    load += static_cast<double>(counts[static_cast<std::size_t>(part)]) * block;
    if (part == 0) load += 2.0 * static_cast<double>(config.hidden * S);
    if (part == last) load += head;
  }
  return *std::max_element(loads.begin(), loads.end());
}

// The least that any split reaches; only the first and the last part may have no block.
double least(const ModelConfig& config, const Placement& placement, Counts& counts,
             std::int64_t left, std::int64_t S) {
  const auto part = static_cast<int>(counts.size());
  if (part + 1 == placement.num_parts()) {
    counts.push_back(left);
    const double found = slowest(config, placement, counts, S);
    counts.pop_back();
    return found;
  }
  double best = 1e300;
  for (std::int64_t blocks = part == 0 ? 0 : 1; blocks <= left; ++blocks) {
    counts.push_back(blocks);
    best = std::min(best, least(config, placement, counts, left - blocks, S));
    counts.pop_back();
  }
  return best;
}

TEST(Parts, EvenGivesTheFirstOnesMore) {
  const ModelConfig model = preset("gpt2-124m");
  EXPECT_EQ(blocks_per_part(model, {"even", {}}, straight(5), 1024), (Counts{3, 3, 2, 2, 2}));
  EXPECT_EQ(blocks_per_part(model, {"even", {}}, looped(2, 4), 64),
            (Counts{2, 2, 2, 2, 1, 1, 1, 1}));
  EXPECT_EQ(blocks_per_part(model, {"even", {}}, straight(1), 1024), (Counts{12}));
  EXPECT_EQ(blocks_per_part(model, {"", {4, 8}}, straight(2), 1024), (Counts{4, 8}));
}

TEST(Parts, BalancedMakesTheSlowestRankAsFastAsCanBe) {
  for (const Placement& placement : {straight(3), straight(4), looped(2, 2), looped(3, 2),
                                     v_shape(2), v_shape(3), looped(1, 3)}) {
    for (const char* name : {"gpt2-124m", "bloom-560m", "llama-7b", "qwen2-0.5b"}) {
      for (const std::int64_t S : {64, 1024}) {
        ModelConfig model = preset(name);
        model.layers = 12;
        const Counts counts = blocks_per_part(model, {"balanced", {}}, placement, S);
        EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}), model.layers);
        Counts none;
        EXPECT_NEAR(slowest(model, placement, counts, S) / least(model, placement, none, 12, S), 1,
                    1e-12)
            << name << " in " << placement.num_parts() << " parts";
        for (std::size_t part = 1; part + 1 < counts.size(); ++part) {
          EXPECT_GT(counts[part], 0) << name;
        }
      }
    }
  }
}

// GPT-2's head is as much work as some five blocks.
TEST(Parts, AHeavyHeadIsAPartOfItsOwn) {
  const ModelConfig model = preset("gpt2-124m");
  EXPECT_EQ(blocks_per_part(model, {"balanced", {}}, straight(6), 1024),
            (Counts{2, 3, 3, 2, 2, 0}));
  EXPECT_EQ(blocks_per_part(model, {"balanced", {}}, straight(1), 1024), (Counts{12}));
}

// The rank with the head has fewer blocks in its other part, too.
TEST(Parts, BalancedCountsAllPartsOfARank) {
  const ModelConfig model = preset("gpt2-124m");
  const Counts counts = blocks_per_part(model, {"balanced", {}}, looped(2, 2), 1024);
  EXPECT_EQ(counts[0] + counts[2], 8);
  EXPECT_EQ(counts[1] + counts[3], 4);
  // On a V the first and the last part share a rank.
  const Counts on_v = blocks_per_part(model, {"balanced", {}}, v_shape(2), 1024);
  EXPECT_EQ(on_v[1] + on_v[2], 8);
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
