// simulate() passes what can run and locates what cannot; bubble() against the formula.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "pipeline/boundary.h"
#include "pipeline/schedule.h"
#include "tests/pipeline/hand_made.h"

namespace orthant {
namespace {

std::string verdict(const Schedule& lowered, const Placement& placement) {
  try {
    simulate(lowered, placement);
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kRun);
    return error.what();
  }
  return "runs";
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

Action action_of(std::string_view text) {
  return from_text(text).front();
}

auto place_of(RankActions& actions, std::string_view text) {
  return std::find(actions.begin(), actions.end(), action_of(text));
}

// 1f1b on three stages and four micro-batches, to be damaged.
class Damaged {
 public:
  void remove(int rank, std::string_view what) {
    RankActions& actions = list(rank);
    actions.erase(place_of(actions, what));
  }
  void repeat(int rank, std::string_view what) {
    RankActions& actions = list(rank);
    actions.insert(place_of(actions, what), action_of(what));
  }
  void swap(int rank, std::string_view a, std::string_view b) {
    RankActions& actions = list(rank);
    std::iter_swap(place_of(actions, a), place_of(actions, b));
  }
  void rename(int rank, std::string_view from, std::string_view to) {
    *place_of(list(rank), from) = action_of(to);
  }
  std::string verdict() const { return orthant::verdict(lowered_, straight(3)); }

 private:
  RankActions& list(int rank) { return lowered_[static_cast<std::size_t>(rank)]; }
  Schedule lowered_ = lower(one_f_one_b(3, 4), straight(3));
};

TEST(Simulate, SchedulesRunOnEveryGrid) {
  for (const ScheduleChoice& choice : choices(8, 4)) {
    const Placement placement = placement_of(choice);
    for (int micros = 1; micros <= 12; ++micros) {
      const Schedule compute = make_schedule(choice, micros);
      const Schedule lowered = lower(compute, placement);
      ASSERT_EQ(verdict(lowered, placement), "runs") << name_of(choice) << " x " << micros;
    }
  }
}

TEST(Simulate, StraightSchedulesTakeTheirRounds) {
  for (const char* name : {"gpipe", "1f1b"}) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      for (int micros = 1; micros <= 24; ++micros) {
        const Schedule compute = make_schedule({name, ranks}, micros);
        EXPECT_EQ(simulate(lower(compute, straight(ranks)), straight(ranks)),
                  2 * (micros + ranks - 1))
            << name << " " << ranks << "x" << micros;
      }
    }
  }
}

TEST(Simulate, EvaluationRuns) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int micros = 1; micros <= 24; ++micros) {
      const Schedule lowered = lower(forward_only(straight(stages), micros), straight(stages));
      EXPECT_EQ(simulate(lowered, straight(stages)), micros + stages - 1);
    }
  }
}

TEST(Simulate, EvaluationRunsOnEveryPlacement) {
  for (const ScheduleChoice& choice : choices(8, 4)) {
    const Placement placement = placement_of(choice);
    for (int micros = 1; micros <= 12; ++micros) {
      const Schedule compute = forward_only(placement, micros);
      ASSERT_EQ(verdict(lower(compute, placement), placement), "runs") << name_of(choice);
      for (const RankActions& actions : compute) {
        ASSERT_EQ(in_flight(actions), 1);
      }
    }
  }
}

TEST(Simulate, ChunksAndSplitBackwardsRun) {
  for (const HandMade& made : {interleaved_2x4(), v_2x2(), split_3x4()}) {
    EXPECT_EQ(verdict(lower(made.compute, made.placement), made.placement), "runs");
  }
}

TEST(Simulate, RemovedMessageIsLocated) {
  struct Case {
    int rank;
    std::string_view removed;
    std::string_view at;
  };
  for (const Case& c :
       {Case{0, "sendF1", "rank 0 at F2: it overwrites what sendF1"},
        {1, "sendB1", "rank 1 at B2: it overwrites what sendB1"},
        {1, "recvF2", "rank 1 at F2: recvF2 should be posted before it"},
        {0, "recvB2", "rank 0 at B2: recvB2 should be posted before it"},
        {0, "sendF3", "rank 1: F3 waits for sendF3 of rank 0, which never has it"},
        {2, "sendB3", "rank 1: B3 waits for sendB3 of rank 2, which never has it"}}) {
    Damaged schedule;
    schedule.remove(c.rank, c.removed);
    EXPECT_TRUE(has(schedule.verdict(), c.at)) << c.removed << ": " << schedule.verdict();
  }
}

TEST(Simulate, EveryRemovedActionIsFound) {
  for (const ScheduleChoice& choice : choices_of(4, {2})) {
    const Placement placement = placement_of(choice);
    const Schedule whole = lower(make_schedule(choice, 5), placement);
    for (std::size_t rank = 0; rank < whole.size(); ++rank) {
      for (std::size_t place = 0; place < whole[rank].size(); ++place) {
        Schedule damaged = whole;
        damaged[rank].erase(damaged[rank].begin() + static_cast<std::ptrdiff_t>(place));
        const std::string found = verdict(damaged, placement);
        EXPECT_TRUE(has(found, to_text({whole[rank][place]}))) << found;
      }
    }
  }
}

TEST(Simulate, EveryDoubledActionIsFound) {
  const Schedule whole = lower(one_f_one_b(4, 5), straight(4));
  for (std::size_t rank = 0; rank < whole.size(); ++rank) {
    for (std::size_t place = 0; place < whole[rank].size(); ++place) {
      Schedule damaged = whole;
      const Action action = damaged[rank][place];
      damaged[rank].insert(damaged[rank].begin() + static_cast<std::ptrdiff_t>(place), action);
      const std::string found = verdict(damaged, straight(4));
      EXPECT_TRUE(has(found, fmt::format("rank {} at {}:", rank, to_text({action})))) << found;
    }
  }
}

TEST(Simulate, SwappedOrderIsLocated) {
  Damaged weights;
  weights.swap(2, "B1", "B2");
  EXPECT_TRUE(has(weights.verdict(), "rank 2 at B2: it comes before its forward"))
      << weights.verdict();
  Damaged messages;
  messages.swap(0, "sendF0", "sendF1");
  EXPECT_TRUE(has(messages.verdict(), "rank 0 at sendF1")) << messages.verdict();
  Damaged readers;
  readers.swap(1, "recvF1", "recvF2");
  EXPECT_TRUE(has(readers.verdict(), "recvF2")) << readers.verdict();
}

TEST(Simulate, ForwardsOutOfMicroOrderAreRefused) {
  const std::string found = verdict(schedule_of({"F1 F0 B0 B1"}), straight(1));
  EXPECT_TRUE(has(found, "rank 0 at F0: forwards run in micro order, 1 was before")) << found;
}

TEST(Simulate, WeightPassesOutOfMicroOrderAreRefused) {
  const std::string found =
      verdict(lower(schedule_of({"F0 F1 I0 I1 W1 W0"}), straight(1)), straight(1));
  EXPECT_TRUE(has(found, "rank 0 at W0: weight passes run in micro order, 1 was before")) << found;
}

TEST(Simulate, HalvesOfABackwardBelongTogether) {
  struct Case {
    std::string_view text;
    std::string_view found;
  };
  for (const Case& c : {Case{"F0 W0 I0", "at W0: it comes before its input gradient"},
                        {"F0 I0", "W0 is missing"},
                        {"F0 F1 B0", "B1 is missing"},
                        {"F0 B0 W0", "at W0"},
                        {"F0 I0 B0", "at B0: a micro-batch has either"},
                        {"F0 F2 B0 B2", "F1 is missing"},
                        {"F0 F9999999 B0", "F9999999 in a schedule of 3 actions"},
                        {"F0.1", "F0.1: the rank has 1 chunks"}}) {
    const std::string found = verdict(schedule_of({c.text}), straight(1));
    EXPECT_TRUE(has(found, c.found)) << c.text << ": " << found;
  }
}

TEST(Simulate, WrongMicroIsLocated) {
  Damaged sender;
  sender.rename(0, "sendF2", "sendF3");
  EXPECT_TRUE(has(sender.verdict(), "rank 0 at sendF3")) << sender.verdict();
  Damaged receiver;
  receiver.rename(1, "recvB2", "recvB3");
  EXPECT_TRUE(has(receiver.verdict(), "recvB3")) << receiver.verdict();
  EXPECT_TRUE(has(receiver.verdict(), "rank 1")) << receiver.verdict();
}

TEST(Simulate, DeadlockShowsWhereEachRankIs) {
  // Rank 0 wants a gradient before it gives the forward that rank 1 needs first.
  const Schedule compute = schedule_of({"F0 B0 F1 B1", "F0 F1 B0 B1"});
  const std::string found = verdict(lower(compute, straight(2)), straight(2));
  EXPECT_EQ(found,
            "schedule: these ranks can never go on\n"
            "  rank 0: B0 waits for sendB0 of rank 1, which is at F1\n"
            "  rank 1: F1 waits for sendF1 of rank 0, which is at B0\n"
            "all ranks, > < where each is\n"
            "  rank 0: recvB0 F0 sendF0 >B0< recvB1 F1 sendF1 B1\n"
            "  rank 1: recvF0 F0 recvF1 >F1< B0 sendB0 B1 sendB1");
}

TEST(Simulate, OneBufferIsAllThatASenderMayRunAhead) {
  // Rank 0 writes F2 when rank 1 has taken F0 only and waits for rank 0's B0 never to come.
  const Schedule compute = schedule_of({"F0 F1 F2 B0 B1 B2", "F0 B0 B1 F1 F2 B2"});
  const std::string found = verdict(lower(compute, straight(2)), straight(2));
  EXPECT_TRUE(has(found, "rank 1 at B1: it comes before its forward")) << found;
  const HandMade v = v_2x2();
  const Schedule greedy =
      schedule_of({"F0 F1 F0.1 B0.1 F1.1 B1.1 B0 B1", "F0 F1 F0.1 F1.1 B0.1 B0 B1.1 B1"});
  const std::string local = verdict(lower(greedy, v.placement), v.placement);
  EXPECT_TRUE(has(local, "rank 1 at F1: chunk 1 has not read micro-batch 0 yet")) << local;
}

TEST(Simulate, LongListsAreCutAroundThePlace) {
  Schedule lowered = lower(one_f_one_b(2, 64), straight(2));
  RankActions& actions = lowered[0];
  actions.erase(place_of(actions, "sendF30"));
  const std::string found = verdict(lowered, straight(2));
  EXPECT_TRUE(has(found, "before)")) << found;
  EXPECT_TRUE(has(found, ">F31<")) << found;
  EXPECT_LT(found.size(), 800u);
}

TEST(Lower, ReceivesKeepTheOrderOfTheirSends) {
  const HandMade made = interleaved_2x4();
  const Schedule lowered = lower(made.compute, made.placement);
  EXPECT_EQ(to_text(lowered[1]).substr(0, 60),
            "recvF0 F0 sendF0 recvF1 recvF0.1 F1 sendF1 F0.1 recvF1.1 B0.");
  // Rank 1 reads chunk 1 before it reads the chunk 0 that was sent earlier: the receive moves
  // ahead.
  const Placement placement = looped(2, 2);
  const Schedule compute = schedule_of({"F0 F1 F0.1 F1.1", "F0 F0.1 F1 F1.1"});
  EXPECT_EQ(to_text(lower(compute, placement)[1]),
            "recvF0 F0 sendF0 recvF1 recvF0.1 F0.1 recvF1.1 F1 sendF1 F1.1");
}

double idle_share(const ScheduleChoice& choice, int micros, double forward = 1, double input = 1,
                  double weight = 1) {
  const Placement placement = placement_of(choice);
  return bubble(lower(make_schedule(choice, micros), placement), placement, forward, input, weight);
}

// A receive comes one compute action early, or right behind the last reader of its buffer.
TEST(Lower, ReceivesArePostedOneActionEarly) {
  for (const ScheduleChoice& choice : choices_of(5, {1, 3})) {
    const Placement placement = placement_of(choice);
    const Schedule lowered = lower(make_schedule(choice, 10), placement);
    for (const RankActions& actions : lowered) {
      std::map<std::pair<Action::Kind, int>, int> free_from;  // by kind of receive and chunk
      std::map<std::pair<Action::Kind, int>, int> posted;
      int place = 0;
      for (const Action& action : actions) {
        if (is_recv(action.kind)) posted[{action.kind, action.chunk}] = place;
        if (!is_compute(action.kind)) continue;
        const bool forward = action.kind == Action::Kind::kForward;
        const std::pair buffer(recv_of(forward ? Cargo::kAct : Cargo::kGrad), action.chunk);
        if (action.kind != Action::Kind::kBackwardWeight && posted.contains(buffer)) {
          EXPECT_EQ(posted[buffer], std::max(place - 1, free_from[buffer]))
              << name_of(choice) << ": " << to_text({action}) << " in " << to_text(actions);
          free_from[buffer] = place + 1;
        }
        ++place;
      }
    }
  }
}

// Bubbles that users know by heart.
TEST(Bubble, OfOneForwardOneBackwardIsThatOfTheTable) {
  struct Row {
    int ranks;
    int micros;
    double percent;
  };
  for (const Row& row : {Row{2, 8, 11.1},
                         {2, 16, 5.9},
                         {4, 16, 15.8},
                         {4, 32, 8.6},
                         {8, 32, 17.9},
                         {8, 64, 9.9},
                         {12, 48, 18.6}}) {
    EXPECT_NEAR(100 * idle_share({"1f1b", row.ranks}, row.micros), row.percent, 0.05);
  }
}

TEST(Bubble, OfWholeBackwardsIsThatOfTheFormula) {
  for (const char* name : {"gpipe", "1f1b"}) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      for (int micros = 1; micros <= 24; ++micros) {
        const ScheduleChoice choice = {name, ranks};
        const double expected = (ranks - 1.0) / (micros + ranks - 1.0);
        EXPECT_EQ(idle_share(choice, micros), expected) << name;
        EXPECT_EQ(idle_share(choice, micros, 4, 1, 0.5), expected) << name;
        EXPECT_NEAR(idle_share(choice, micros, 0.3, 1.7, 0.9), expected, 1e-12) << name;
      }
    }
  }
}

TEST(Bubble, OfInterleavedIsThatOfTheFormula) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int chunks = 1; chunks <= 4; ++chunks) {
      for (int groups = 1; groups <= 4; ++groups) {
        const ScheduleChoice choice = {"interleaved", ranks, chunks};
        const int micros = groups * ranks;
        const double expected = (ranks - 1.0) / (chunks * micros + ranks - 1.0);
        EXPECT_NEAR(idle_share(choice, micros), expected, 1e-12)
            << ranks << " ranks, " << chunks << " chunks, " << micros << " micro-batches";
      }
    }
  }
}

// ZB-H1's: a third of 1f1b's idle slots, of which a stage of a micro-batch has three.
TEST(Bubble, OfZeroBubbleIsThatOfTheFormula) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int micros = ranks; micros <= 24; ++micros) {
      const double expected = (ranks - 1.0) / (3.0 * micros + ranks - 1.0);
      EXPECT_NEAR(idle_share({"zero_bubble", ranks}, micros), expected, 1e-12)
          << ranks << "x" << micros;
    }
  }
}

// docs/parallelism.md says these; the least that a V can take is 6 * micros + ranks - 1 slots.
TEST(Bubble, OfZeroBubbleVIsWhatTheDocumentSays) {
  for (const int ranks : {2, 4, 8}) {
    for (const int groups : {1, 2, 4}) {
      const int micros = groups * ranks;
      const double least = (ranks - 1.0) / (6.0 * micros + ranks - 1.0);
      EXPECT_NEAR(idle_share({"zero_bubble_v", ranks}, micros), least, 1e-12)
          << ranks << "x" << micros;
    }
  }
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int micros = ranks; micros <= 24; ++micros) {
      const Placement placement = v_shape(ranks);
      const int slots = simulate(lower(zero_bubble_v(ranks, micros), placement), placement);
      EXPECT_LE(slots, 6 * micros + ranks - 1 + ranks / 2) << ranks << "x" << micros;
    }
  }
}

TEST(Bubble, OfFewMicroBatchesIsNoneTheLarger) {
  for (int ranks = 2; ranks <= 8; ++ranks) {
    for (int micros = 1; micros <= ranks; ++micros) {
      const double whole = idle_share({"1f1b", ranks}, micros);
      EXPECT_LE(idle_share({"zero_bubble", ranks}, micros), whole) << ranks << "x" << micros;
      EXPECT_LE(idle_share({"zero_bubble_v", ranks}, micros), whole) << ranks << "x" << micros;
      EXPECT_LE(idle_share({"interleaved", ranks, 2}, micros), whole) << ranks << "x" << micros;
    }
  }
}

}  // namespace
}  // namespace orthant
