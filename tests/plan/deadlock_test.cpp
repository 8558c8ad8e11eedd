// Launch orders: what can never end is found and told, and what can is let through. Worlds are
// written by hand, over two ranks with two groups of both.
#include <gtest/gtest.h>

#include "plan/match.h"

namespace orthant {
namespace {

constexpr auto kFirst = Lane::kFirstComm;
constexpr auto kSecond = static_cast<Lane>(static_cast<int>(Lane::kFirstComm) + 1);

// A ledger of calls; "h" counts up for places.
class Script {
 public:
  Script& collective(Lane lane, std::uint64_t fingerprint) {
    return start("all_reduce", lane, fingerprint, -1).wait(lane);
  }
  Script& start(std::string_view what, Lane lane, std::uint64_t fingerprint, int peer) {
    Entry entry;
    entry.what = what;
    entry.lane = lane;
    entry.fingerprint = fingerprint;
    entry.message_bytes = 8;
    entry.group_size = 2;
    entry.peer = peer;
    entry.starts = {++last_};
    entries.push_back(entry);
    open_.push_back(last_);
    return *this;
  }
  // For the oldest call that is open.
  Script& wait(Lane lane) {
    Entry entry;
    entry.what = "wait";
    entry.lane = lane;
    entry.waits_for = {open_.front()};
    open_.erase(open_.begin());
    entries.push_back(entry);
    return *this;
  }
  std::vector<Entry> entries;

 private:
  std::int64_t last_ = 0;
  std::vector<std::int64_t> open_;
};

World world_of(const Script& a, const Script& b) {
  World world;
  world.kinds = {make_program(a.entries, world.tables), make_program(b.entries, world.tables)};
  world.kind_of = {0, 1};
  world.groups.all = {{.lane = kFirst, .name = "one", .members = {0, 1}},
                      {.lane = kSecond, .name = "two", .members = {0, 1}}};
  world.groups.seats = {{{0, 0}, {1, 0}}, {{0, 1}, {1, 1}}};
  return world;
}

TEST(Deadlock, CallsInOneOrderEnd) {
  const Script both = Script().collective(kFirst, 1).collective(kSecond, 2);
  const MatchResult result = match(world_of(both, both));
  EXPECT_TRUE(result.is_whole());
  EXPECT_EQ(result.in_order_deadlock, "");
}

TEST(Deadlock, TwoGroupsInOppositeOrdersAreFound) {
  const Script a = Script().collective(kFirst, 1).collective(kSecond, 2);
  const Script b = Script().collective(kSecond, 2).collective(kFirst, 1);
  const MatchResult result = match(world_of(a, b));
  EXPECT_TRUE(result.mismatches.empty());
  EXPECT_FALSE(result.is_whole());
  EXPECT_NE(result.deadlock.find("rank 0 "), std::string::npos) << result.deadlock;
  EXPECT_NE(result.deadlock.find("rank 1 has not come in group 'one'"), std::string::npos)
      << result.deadlock;
  EXPECT_NE(result.deadlock.find("rank 0 has not come in group 'two'"), std::string::npos)
      << result.deadlock;
}

// Started before either is waited for, the same orders do no harm.
TEST(Deadlock, OppositeOrdersOfStartedCallsEnd) {
  const Script a = Script()
                       .start("all_reduce", kFirst, 1, -1)
                       .start("all_reduce", kSecond, 2, -1)
                       .wait(kFirst)
                       .wait(kSecond);
  const Script b = Script()
                       .start("all_reduce", kSecond, 2, -1)
                       .start("all_reduce", kFirst, 1, -1)
                       .wait(kSecond)
                       .wait(kFirst);
  EXPECT_TRUE(match(world_of(a, b)).is_whole());
}

// Each sends before it receives: well where messages of a pair have their own order, and for ever
// where a communicator runs its calls one after another.
TEST(Deadlock, CrossingSendsEndUnlessACommunicatorKeepsOrder) {
  const Script a =
      Script().start("send", kFirst, 1, 1).start("recv", kFirst, 2, 1).wait(kFirst).wait(kFirst);
  const Script b =
      Script().start("send", kFirst, 2, 0).start("recv", kFirst, 1, 0).wait(kFirst).wait(kFirst);
  const MatchResult result = match(world_of(a, b));
  EXPECT_TRUE(result.is_whole());
  EXPECT_NE(result.in_order_deadlock, "");
}

TEST(Deadlock, ASendThatWaitsForALaterReceiveIsFound) {
  const Script a = Script().start("send", kFirst, 1, 1).wait(kFirst).collective(kSecond, 5);
  const Script b = Script().collective(kSecond, 5).start("recv", kFirst, 1, 0).wait(kFirst);
  const MatchResult result = match(world_of(a, b));
  EXPECT_TRUE(result.mismatches.empty());
  EXPECT_NE(result.deadlock.find("send"), std::string::npos) << result.deadlock;
}

TEST(Deadlock, ACallThatIsNeverWaitedForIsRefused) {
  ProgramTables tables;
  EXPECT_THROW(make_program(Script().start("send", kFirst, 1, 1).entries, tables), Error);
}

// Two computing ranks and a message: the receiver waits for it, and what it waits is told.
TEST(Timeline, AddsComputingAndMessages) {
  Entry work;
  work.what = "linear_fwd";
  work.cost.flops = 3e12;
  Script a;
  a.entries.push_back(work);
  a.start("send", kFirst, 1, 1).wait(kFirst);
  Script b;
  b.start("recv", kFirst, 1, 0).wait(kFirst);
  b.entries.push_back(work);
  const World world = world_of(a, b);
  const Classes classes = find_classes(world.groups, world.kinds, world.kind_of);
  const Durations durations = {.stretches = {3.0},
                               .call = [](const Instruction&, const Group&, int) { return 0.5; },
                               .copy = {}};
  const Timeline timeline = run_timeline(world, classes, LaneOrder::kByPair, durations, {});
  EXPECT_EQ(timeline.makespan, 6.5);
  EXPECT_EQ(timeline.classes[0].waits.at("one"), 0.5);
  EXPECT_EQ(timeline.classes[1].waits.at("one"), 3.5);
  EXPECT_EQ(timeline.classes[1].compute, 3.0);
}

}  // namespace
}  // namespace orthant
