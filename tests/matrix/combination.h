// Combination: one choice of every option of a layout, and samples of them in which every pair of
// choices that can meet does.
#pragma once

#include <array>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "tests/support/small_training.h"

namespace orthant::test {

struct Mesh3 {
  int tp, pp, dp;
};
struct OffloadChoice {
  const char* what;
  double fraction;
};
struct RecomputeChoice {
  const char* what;
  int blocks;
  bool splits_inputs;
};
// Of bf16 the reference, in fp32 or more, is so far away.
struct PrecisionChoice {
  DType compute;
  DType master;
  double loss_error;
  double norm_error;  // relative
};
struct ScheduleAndParts {
  const char* name;
  int virtual_stages;
};

// "odd" models have a vocabulary of 509, five blocks, dropout where the family has it, weights from
// a seed, and sequences of several documents.
inline const std::vector<const char*> kModels = {"gpt2-tiny", "bloom-tiny", "llama-tiny",
                                                 "odd gpt",   "odd bloom",  "odd llama"};
inline const std::vector<Mesh3> kMeshes = {
    {1, 1, 1}, {2, 1, 1}, {4, 1, 1}, {8, 1, 1}, {1, 2, 1}, {1, 3, 1}, {1, 4, 1}, {1, 1, 2},
    {1, 1, 4}, {2, 2, 1}, {2, 2, 2}, {2, 4, 1}, {4, 2, 1}, {2, 1, 2}, {2, 1, 4}, {4, 1, 2},
    {1, 2, 2}, {1, 4, 2}, {1, 2, 4}, {1, 3, 2}, {2, 3, 1}, {1, 1, 8}};
inline const std::vector<ScheduleAndParts> kSchedules = {
    {"gpipe", 1},       {"1f1b", 1},        {"interleaved", 1},  {"interleaved", 2},
    {"zero_bubble", 1}, {"interleaved", 4}, {"zero_bubble_v", 2}};
inline const std::vector<std::pair<int, const char*>> kZero = {
    {0, "micro"}, {1, "micro"}, {2, "micro"}, {3, "micro"}, {3, "step"}};
inline const std::vector<RecomputeChoice> kRecompute = {
    {"none", 0, false},  {"cheap", 0, false}, {"attention", 0, false}, {"attention", 1, false},
    {"block", 0, false}, {"block", 1, false}, {"block", 0, true}};
inline const std::vector<OffloadChoice> kOffload = {
    {"none", 1}, {"stash", 1}, {"stash", 0.5}, {"optimizer", 1}, {"optimizer", 0.4}};
inline const std::vector<int> kMicroBatches = {1, 2, 4};
inline const std::vector<const char*> kOverlaps = {"rows", "halves"};
inline const std::vector<const char*> kStages = {"even", "balanced", "list"};
inline const std::vector<PrecisionChoice> kPrecision = {{DType::kF32, DType::kF32, 1e-5, 1e-4},
                                                        {DType::kBF16, DType::kI16, 2e-2, 2e-2}};

enum Option {
  kModel,
  kMesh,
  kSchedule,
  kRows,
  kZeroStage,
  kRecomputed,
  kOffloaded,
  kMicro,
  kOverlap,
  kDepth,
  kTypes
};
inline constexpr std::size_t kNumOptions = 11;
using Combination = std::array<int, kNumOptions>;  // of each option the place of its value

inline Combination sizes() {
  const auto size = [](const auto& values) {
    return static_cast<int>(values.size());
  };
  return {size(kModels),   size(kMeshes),    size(kSchedules), 2,
          size(kZero),     size(kRecompute), size(kOffload),   size(kMicroBatches),
          size(kOverlaps), size(kStages),    size(kPrecision)};
}

template <class Values>
const auto& value_of(const Values& values, const Combination& c, Option option) {
  return values[static_cast<std::size_t>(c[option])];
}

inline std::int64_t blocks_of(const Combination& c) {
  return std::string(value_of(kModels, c, kModel)).starts_with("odd") ? 5 : 4;
}

inline std::string text_of(const Combination& c) {
  const Mesh3& mesh = value_of(kMeshes, c, kMesh);
  const auto& [schedule, parts] = value_of(kSchedules, c, kSchedule);
  const auto& [zero, gather] = value_of(kZero, c, kZeroStage);
  const RecomputeChoice& recompute = value_of(kRecompute, c, kRecomputed);
  const OffloadChoice& offload = value_of(kOffload, c, kOffloaded);
  return fmt::format(
      "{}, tp {} pp {} dp {}, {} x{}, rows {}, zero {} {}, recompute {} {}{}, offload {} {}, "
      "micro-batch {}, overlap of {}, stages {}, {}, masters in {}",
      value_of(kModels, c, kModel), mesh.tp, mesh.pp, mesh.dp, schedule, parts,
      c[kRows] == 1 ? "split" : "whole", zero, gather, recompute.what, recompute.blocks,
      recompute.splits_inputs ? " split" : "", offload.what, offload.fraction,
      value_of(kMicroBatches, c, kMicro), value_of(kOverlaps, c, kOverlap),
      value_of(kStages, c, kDepth), name_of(value_of(kPrecision, c, kTypes).compute),
      name_of(value_of(kPrecision, c, kTypes).master));
}

// Halves of micro-batches take turns.
inline bool takes_turns(const Combination& c) {
  return value_of(kMeshes, c, kMesh).tp > 1 &&
         std::string(value_of(kOverlaps, c, kOverlap)) == "halves";
}

// What no run can be: fewer blocks than parts, more sequences than the batch has, half a sequence,
// and the one pair that is refused.
inline bool can_be(const Combination& c) {
  const Mesh3& mesh = value_of(kMeshes, c, kMesh);
  const bool refused = std::string(value_of(kOffload, c, kOffloaded).what) == "stash" &&
                       std::string(value_of(kRecompute, c, kRecomputed).what) == "block";
  const bool halves = !takes_turns(c) || value_of(kMicroBatches, c, kMicro) % 2 == 0;
  return !refused && halves &&
         mesh.pp * value_of(kSchedules, c, kSchedule).virtual_stages <= blocks_of(c) &&
         value_of(kMicroBatches, c, kMicro) * mesh.dp <= kBatch;
}

inline Combination random_combination(std::uint64_t& counter) {
  const Combination limits = sizes();
  for (int tries = 0; tries < 10000; ++tries) {
    Combination c{};
    for (std::size_t i = 0; i < kNumOptions; ++i) {
      c[i] =
          static_cast<int>(philox(2024, 7, counter++)[0] % static_cast<std::uint32_t>(limits[i]));
    }
    if (can_be(c)) return c;
  }
  fail_run("no combination is possible");
}

using Pair = std::array<int, 4>;  // option, its value, another option, its value
inline std::vector<Pair> pairs_of(const Combination& c) {
  std::vector<Pair> pairs;
  for (int i = 0; i < static_cast<int>(kNumOptions); ++i) {
    for (int j = i + 1; j < static_cast<int>(kNumOptions); ++j) {
      pairs.push_back({i, c[static_cast<std::size_t>(i)], j, c[static_cast<std::size_t>(j)]});
    }
  }
  return pairs;
}

// `count` combinations of a fixed seed: first those that bring most pairs not seen yet, until every
// pair that can meet has met, then any. Sorted, so that those of one model and mesh are neighbours.
inline std::vector<Combination> sample(std::size_t count) {
  std::uint64_t counter = 0;
  std::vector<Combination> pool;
  std::set<Pair> open;
  while (pool.size() < 20000) {
    pool.push_back(random_combination(counter));
    for (const Pair& pair : pairs_of(pool.back())) {
      open.insert(pair);
    }
  }
  std::set<Combination> chosen;
  for (std::size_t first = 0; !open.empty(); first = (first + 400) % (pool.size() - 400)) {
    const auto news = [&](const Combination& c) {
      const std::vector<Pair> pairs = pairs_of(c);
      return std::count_if(pairs.begin(), pairs.end(),
                           [&](const Pair& pair) { return open.contains(pair); });
    };
    const auto begin = pool.begin() + static_cast<std::ptrdiff_t>(first);
    const auto best = std::max_element(
        begin, begin + 400, [&](const auto& a, const auto& b) { return news(a) < news(b); });
    if (news(*best) == 0) continue;
    chosen.insert(*best);
    for (const Pair& pair : pairs_of(*best)) {
      open.erase(pair);
    }
  }
  while (chosen.size() < count) {
    chosen.insert(random_combination(counter));
  }
  return {chosen.begin(), chosen.end()};
}

}  // namespace orthant::test
