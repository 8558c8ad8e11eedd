// The calls of all ranks are matched; what is removed, doubled or changed on one rank is located.
#include "plan/match.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace orthant {
namespace {

RankConfig config_of(int tp, int pp, int dp) {
  RankConfig config;
  config.model = preset("tiny-gpt");
  config.layout.tp = tp;
  config.layout.pp = pp;
  config.layout.ranks = tp * pp * dp;
  config.seq_length = 16;
  config.max_micros = 4;
  return config;
}

// A layout, with the ledger of one rank taken out to be changed.
struct Edited {
  RankConfig config;
  int rank;
  DryWorld dry;
  DryRun own;

  Edited(const RankConfig& of, int edited)
      : config(of),
        rank(edited),
        dry(dry_world(of, 0)),
        own(dry_run(of, edited, 0)) {}

  // The index of the n-th start of a call named `what` in group `group`.
  std::size_t find(std::string_view what, const std::string& group, int n) const {
    for (std::size_t i = 0; i < own.step.size(); ++i) {
      const Entry& entry = own.step[i];
      if (entry.what != what || entry.starts.done() || name_of(entry.lane) != group) continue;
      if (n-- == 0) return i;
    }
    fail_run("rank {} has no such {} in {}", rank, what, group);
  }
  std::string name_of(Lane lane) const {
    const Groups& groups = dry.world.groups;
    return groups.all[static_cast<std::size_t>(groups.seat(rank, lane).group)].name;
  }

  MatchResult match_again() {
    World& world = dry.world;
    world.kind_of[static_cast<std::size_t>(rank)] = static_cast<int>(world.kinds.size());
    world.kinds.push_back(make_program(own.step, world.tables));
    return match(world);
  }
  std::string place(std::size_t index) {
    const Program whole = make_program(own.step, dry.world.tables);
    for (const Instruction& instruction : whole.list) {
      const Entry& entry = own.step[index];
      if (is_call(instruction) && instruction.fingerprint == entry.fingerprint &&
          instruction.at == entry.at && dry.world.tables.name(instruction.place) == entry.where) {
        return place_text(dry.world.tables, instruction);
      }
    }
    return "?";
  }

  void remove(std::size_t index) {
    const Token token = own.step[index].starts;
    std::erase_if(own.step, [token](const Entry& entry) {
      return entry.starts == token || entry.waits_for == token;
    });
  }
  void repeat(std::size_t index) {
    Entry start = own.step[index];
    Entry wait = start;
    start.starts = {1'000'000};
    wait.starts = {};
    wait.waits_for = start.starts;
    wait.fingerprint = 0;
    own.step.insert(own.step.begin() + static_cast<std::ptrdiff_t>(index), {start, wait});
  }
};

// Three dp ranks: of two that differ, none is right by itself.
struct Case {
  std::string what;
  std::string group;
  int number;
};

const Case kCases[] = {
    {"all_reduce", "tp", 3}, {"all_reduce", "tp", 17},  {"all_reduce", "world", 0},
    {"send", "pp_acts", 2},  {"recv", "pp_grads", 1},   {"reduce_scatter", "dp", 1},
    {"all_gather", "dp", 0}, {"all_reduce", "ends", 0}, {"all_reduce", "world", 1},
};

TEST(Match, AllRanksOfALayoutAgree) {
  for (const char* schedule : {"gpipe", "1f1b"}) {
    for (const auto& [tp, pp, dp] :
         {std::array{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {2, 2, 2}, {4, 4, 2}, {1, 4, 3}}) {
      RankConfig config = config_of(tp, pp, dp);
      config.layout.schedule = schedule;
      const MatchResult result = match(dry_world(config, 0).world);
      EXPECT_TRUE(result.mismatches.empty()) << result.mismatches.front().what;
      EXPECT_EQ(result.deadlock, "") << tp << pp << dp;
      EXPECT_EQ(result.in_order_deadlock, "") << tp << pp << dp;
    }
  }
}

TEST(Match, LocatesACallThatOneRankLacks) {
  for (const Case& c : kCases) {
    Edited edited(config_of(2, 2, 3), 1);
    const std::size_t index = edited.find(c.what, c.group, c.number);
    const std::string place = edited.place(index);
    edited.remove(index);
    const MatchResult result = edited.match_again();
    ASSERT_FALSE(result.mismatches.empty()) << c.what << " " << c.group;
    const Mismatch& first = result.mismatches.front();
    EXPECT_EQ(first.rank, 1) << first.what;
    EXPECT_NE(first.what.find("rank 1 lacks"), std::string::npos) << first.what;
    if (c.what == "all_reduce") {
      EXPECT_EQ(first.place, place) << first.what;
    }
    EXPECT_FALSE(result.is_whole());
  }
}

TEST(Match, LocatesACallThatOneRankRepeats) {
  for (const Case& c : kCases) {
    Edited edited(config_of(2, 2, 3), 1);
    const std::size_t index = edited.find(c.what, c.group, c.number);
    const std::string place = edited.place(index);
    edited.repeat(index);
    const MatchResult result = edited.match_again();
    ASSERT_FALSE(result.mismatches.empty()) << c.what << " " << c.group;
    const Mismatch& first = result.mismatches.front();
    EXPECT_EQ(first.rank, 1) << first.what;
    EXPECT_EQ(first.place, place) << first.what;
    EXPECT_NE(first.what.find("too many"), std::string::npos) << first.what;
  }
}

TEST(Match, LocatesACallThatAsksForSomethingElse) {
  for (const Case& c : kCases) {
    Edited edited(config_of(2, 2, 3), 1);
    const std::size_t index = edited.find(c.what, c.group, c.number);
    const std::string place = edited.place(index);
    edited.own.step[index].fingerprint ^= 1;
    const MatchResult result = edited.match_again();
    ASSERT_FALSE(result.mismatches.empty()) << c.what << " " << c.group;
    EXPECT_EQ(result.mismatches.front().rank, 1) << result.mismatches.front().what;
    EXPECT_EQ(result.mismatches.front().place, place) << result.mismatches.front().what;
  }
}

}  // namespace
}  // namespace orthant
