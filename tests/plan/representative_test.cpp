// One rank of each kind stands for all: on up to 64 ranks every rank's dry run is that of its
// representative.
#include <gtest/gtest.h>

#include "base/text.h"
#include "plan/match.h"

namespace orthant {
namespace {

struct Layout {
  const char* preset;
  int tp;
  int pp;
  int dp;
};

// Calls and computing entry by entry. ZeRO cuts parameters into shards without regard to where one
// ends: an update may take its elements in other portions, and adds over tp only what its shard has
// of parameters that several ranks hold. The groups across dp see the same from all.
std::string compare(const DryRun& own, const DryRun& other, const std::vector<Lane>& across_dp) {
  const auto steps = [&across_dp](const DryRun& run) {
    std::vector<Entry> entries;
    for (const Entry& entry : run.step) {
      const bool is_shared =
          std::find(across_dp.begin(), across_dp.end(), entry.lane) != across_dp.end();
      if (entry.where == "update" && !is_shared) continue;
      entries.push_back(entry);
      entries.back().starts.id = std::min<std::int64_t>(entry.starts.id, 1);
      entries.back().waits_for.id = std::min<std::int64_t>(entry.waits_for.id, 1);
    }
    return entries;
  };
  const std::vector<Entry> a = steps(own);
  const std::vector<Entry> b = steps(other);
  if (a.size() != b.size()) return fmt::format("{} entries, not {}", a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    Entry peerless = b[i];
    if (a[i].what == "send" || a[i].what == "recv") peerless.peer = a[i].peer;
    if (!same(a[i], peerless)) {
      return fmt::format("entry {}: {} at '{}', not {} at '{}'", i, a[i].what, a[i].where,
                         b[i].what, b[i].where);
    }
  }
  return "";
}

std::string compare(const MemoryPlan& own, const MemoryPlan& other) {
  for (std::size_t i = 0; i < own.arenas.size(); ++i) {
    if (own.arenas[i] == other.arenas[i]) continue;
    return fmt::format("arena {}: {} B, not {} B", own.arenas[i].name, own.arenas[i].bytes,
                       other.arenas[i].bytes);
  }
  return own == other ? "" : "other arenas";
}

TEST(Representatives, StandForEveryRank) {
  for (const Layout& layout : {Layout{"tiny-gpt", 4, 4, 4},
                               {"tiny-llama", 8, 2, 3},
                               {"tiny-llama", 2, 1, 5},
                               {"tiny-bloom", 1, 4, 2},
                               {"tiny-gpt", 8, 1, 1}}) {
    RankConfig config;
    config.model = preset(layout.preset);
    config.model.vocab = 251;  // its last part is padded
    config.layout.tp = layout.tp;
    config.layout.pp = layout.pp;
    config.layout.ranks = layout.tp * layout.pp * layout.dp;
    config.seq_length = 16;
    config.max_micros = 3;
    const RunPlan plan = plan_run(config, 2);
    const Groups groups = make_groups(config);
    const std::vector<Lane> across_dp = {lane_of(groups, 0, "world"), lane_of(groups, 0, "dp")};
    std::vector<DryRun> first_of(plan.kinds.size());
    std::vector<bool> is_known(plan.kinds.size());
    for (int rank = 0; rank < config.layout.ranks; ++rank) {
      DryRun own = dry_run(config, rank, 2);
      const auto kind = static_cast<std::size_t>(plan.kind_of[static_cast<std::size_t>(rank)]);
      ASSERT_EQ(compare(own.memory, plan.of(rank).whole), "") << layout.preset << " rank " << rank;
      if (!is_known[kind]) {
        is_known[kind] = true;
        first_of[kind] = std::move(own);
        continue;
      }
      ASSERT_EQ(compare(own, first_of[kind], across_dp), "") << layout.preset << " rank " << rank;
    }
  }
}

}  // namespace
}  // namespace orthant
