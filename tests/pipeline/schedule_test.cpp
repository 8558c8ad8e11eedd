// Schedules as text: the goldens of tests/golden/schedules, the text form, names and slots.
#include "pipeline/schedule.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "base/file.h"
#include "pipeline/programs.h"
#include "tests/pipeline/hand_made.h"

namespace orthant {
namespace {

std::string text_of(const Schedule& schedule) {
  std::string text;
  for (std::size_t rank = 0; rank < schedule.size(); ++rank) {
    text += fmt::format("rank {}: {}\n", rank, to_text(schedule[rank]));
  }
  return text;
}

template <class Body>
std::string user_error_of(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kUser);
    return error.what();
  }
  return "nothing was thrown";
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(Schedules, EqualTheirGoldens) {
  for (const auto& [ranks, micros] : {std::pair{1, 3}, {2, 1}, {2, 4}, {3, 2}, {4, 8}}) {
    for (const ScheduleChoice& choice : choices_of(ranks, {2})) {
      const Schedule compute = make_schedule(choice, micros);
      const std::string found = "compute actions\n" + text_of(compute) + "\nwith messages\n" +
                                text_of(lower(compute, placement_of(choice)));
      const std::string path = fmt::format("{}/tests/golden/schedules/{}_{}x{}.txt",
                                           ORTHANT_SOURCE_DIR, choice.name, ranks, micros);
      EXPECT_EQ(found, read_text_file(path)) << path;
    }
  }
}

TEST(Schedules, RunEachPassOfAChunkOnceInMicroOrder) {
  for (const ScheduleChoice& choice : choices(8, 4)) {
    const Placement placement = placement_of(choice);
    for (int micros = 1; micros <= 12; ++micros) {
      const Schedule schedule = make_schedule(choice, micros);
      for (int rank = 0; rank < choice.num_ranks; ++rank) {
        const RankActions& actions = schedule[static_cast<std::size_t>(rank)];
        std::map<std::pair<Action::Kind, int>, int> done;
        for (const Action& action : actions) {
          ASSERT_EQ(action.micro, (done[{action.kind, action.chunk}]++)) << to_text(actions);
        }
        const bool splits = choice.name.starts_with("zero_bubble");
        ASSERT_EQ(done.size(),
                  static_cast<std::size_t>(placement.num_chunks(rank) * (splits ? 3 : 2)));
        for (const auto& [what, count] : done) {
          ASSERT_EQ(count, micros) << to_text(actions);
        }
      }
    }
  }
}

TEST(Schedules, InFlightIsWhatMemoryIsPlannedFor) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int micros = 1; micros <= 24; ++micros) {
      for (int rank = 0; rank < ranks; ++rank) {
        const auto at = static_cast<std::size_t>(rank);
        EXPECT_EQ(in_flight(one_f_one_b(ranks, micros)[at], 0), std::min(ranks - rank, micros));
        EXPECT_EQ(in_flight(gpipe(ranks, micros)[at]), micros);
        EXPECT_EQ(in_flight(forward_only(straight(ranks), micros)[at]), 1);
        // At the memory of 1f1b's first rank, in stages and in halves of stages.
        EXPECT_LE(in_flight(zero_bubble(ranks, micros)[at]), std::min(ranks, micros));
        EXPECT_LE(in_flight(zero_bubble_v(ranks, micros)[at]), 2 * std::min(ranks, micros));
      }
    }
  }
}

TEST(Schedules, InterleavedHoldsItsWarmUpAndOne) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int chunks = 2; chunks <= 4; ++chunks) {
      for (int micros = 1; micros <= 24; ++micros) {
        const Schedule schedule = interleaved(ranks, chunks, micros);
        for (int rank = 0; rank < ranks; ++rank) {
          const int warm_up = 2 * (ranks - rank - 1) + (chunks - 1) * ranks;
          EXPECT_LE(in_flight(schedule[static_cast<std::size_t>(rank)]),
                    std::min(warm_up + 1, chunks * micros));
        }
      }
    }
  }
}

TEST(Schedules, InFlightCountsEachChunkUntilItsWeightPass) {
  const RankActions actions = from_text("F0 F1 F0.1 I0.1 F1.1 W0.1 B0 I1.1 W1.1 B1");
  EXPECT_EQ(in_flight(actions, 0), 2);
  EXPECT_EQ(in_flight(actions, 1), 2);
  EXPECT_EQ(in_flight(actions, 2), 0);
  EXPECT_EQ(in_flight(actions), 4);
  EXPECT_EQ(between_halves(actions), 1);
  EXPECT_EQ(between_halves(from_text("F0 I0 F1 I1 W0 I0.1 W1 W0.1")), 2);
  const Schedule halved = zero_bubble(4, 8);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(between_halves(halved[static_cast<std::size_t>(rank)]), rank + 1);
  }
}

TEST(Schedules, LoweringKeepsSlots) {
  const Schedule compute = one_f_one_b(4, 8);
  const Schedule lowered = lower(compute, straight(4));
  for (std::size_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(in_flight(lowered[rank], 0), in_flight(compute[rank], 0));
  }
}

TEST(Schedules, TextReadsBack) {
  const std::string text = "recvF0 F0 sendF0 F12.3 B1 I2.1 W2.1 recvB7.2 sendB7 sendF4.10";
  EXPECT_EQ(to_text(from_text(text)), text);
  EXPECT_EQ(from_text("  F0\n\tB0 "), from_text("F0 B0"));
  EXPECT_TRUE(from_text(" \n").empty());
  for (const ScheduleChoice& choice : choices_of(5, {1, 3})) {
    for (const RankActions& actions : lower(make_schedule(choice, 9), placement_of(choice))) {
      EXPECT_EQ(from_text(to_text(actions)), actions);
    }
  }
}

TEST(Schedules, TextThatIsNoActionIsRefused) {
  for (const std::string word :
       {"X0", "F", "F1.", "F1.x", "F-1", "F1x", "sendW0", "1", ".1", "F.1", "f0", "F99999999999"}) {
    const std::string message = user_error_of([&] { from_text("F0 " + word + " B0"); });
    EXPECT_TRUE(has(message, "'" + word + "'")) << word << ": " << message;
  }
}

TEST(Schedules, UnknownNameNamesTheNearest) {
  const std::string typo = user_error_of([] { make_schedule({"1f1"}, 2); });
  EXPECT_TRUE(has(typo, "nearest known one is 1f1b")) << typo;
  EXPECT_TRUE(has(typo, "gpipe")) << typo;
}

TEST(Schedules, WithoutStagesOrMicrosAreRefused) {
  EXPECT_THROW(one_f_one_b(0, 1), Error);
  EXPECT_THROW(gpipe(1, 0), Error);
  EXPECT_THROW(interleaved(2, 0, 1), Error);
  EXPECT_THROW(zero_bubble(2, 0), Error);
  EXPECT_THROW(zero_bubble_v(0, 2), Error);
  EXPECT_THROW(forward_only(straight(2), 0), Error);
}

TEST(Programs, AreMadeOnceForANumberOfMicroBatches) {
  Programs programs({"zero_bubble_v", 2});
  const Schedule& four = programs.training(4);
  const Schedule& forwards = programs.evaluation(4);
  EXPECT_NE(&programs.training(3), &four);
  EXPECT_EQ(&programs.training(4), &four);
  EXPECT_EQ(&programs.evaluation(4), &forwards);
  EXPECT_EQ(four, lower(zero_bubble_v(2, 4), v_shape(2)));
  EXPECT_EQ(forwards, lower(forward_only(v_shape(2), 4), v_shape(2)));
}

TEST(Placements, SayWhichPartLiesWhere) {
  const Placement v = v_shape(2);
  EXPECT_EQ(v.num_parts(), 4);
  EXPECT_EQ(v.num_ranks(), 2);
  EXPECT_EQ(v.part_at(0, 1), 3);
  EXPECT_EQ(v.part_at(1, 1), 2);
  EXPECT_EQ(v.at(3).rank, 0);
  EXPECT_EQ(v.num_chunks(0), 2);
  EXPECT_EQ(straight(3).part_at(2, 0), 2);
  EXPECT_EQ(straight(3).num_chunks(2), 1);
  EXPECT_EQ(looped(3, 2).part_at(1, 1), 4);
  EXPECT_THROW((void)v.part_at(2, 0), Error);
  EXPECT_THROW((void)v.part_at(1, 2), Error);
  EXPECT_THROW(Placement({0, 2}), Error);
  EXPECT_THROW(Placement({}), Error);
}

}  // namespace
}  // namespace orthant
