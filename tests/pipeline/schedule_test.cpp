// Schedules as text: the goldens of tests/golden/schedules, the text form, names and slots.
#include "pipeline/schedule.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "base/file.h"

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
  for (const std::string& name : schedule_names()) {
    for (const auto& [stages, micros] : {std::pair{1, 3}, {2, 1}, {2, 4}, {3, 2}, {4, 8}}) {
      const Schedule compute = make_schedule(name, stages, micros);
      const std::string found = "compute actions\n" + text_of(compute) + "\nwith messages\n" +
                                text_of(lower(compute, straight(stages)));
      const std::string path = fmt::format("{}/tests/golden/schedules/{}_{}x{}.txt",
                                           ORTHANT_SOURCE_DIR, name, stages, micros);
      EXPECT_EQ(found, read_text_file(path)) << path;
    }
  }
}

TEST(Schedules, RunEveryPassOnceInMicroOrder) {
  for (const std::string& name : schedule_names()) {
    for (int stages = 1; stages <= 8; ++stages) {
      for (int micros = 1; micros <= 24; ++micros) {
        for (const RankActions& actions : make_schedule(name, stages, micros)) {
          int forwards = 0;
          int backwards = 0;
          for (const Action& action : actions) {
            int& expected = action.kind == Action::Kind::kForward ? forwards : backwards;
            ASSERT_EQ(action.micro, expected++) << to_text(actions);
          }
          ASSERT_EQ(forwards, micros);
          ASSERT_EQ(backwards, micros);
        }
      }
    }
  }
}

TEST(Schedules, InFlightIsWhatMemoryIsPlannedFor) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int micros = 1; micros <= 24; ++micros) {
      for (int rank = 0; rank < stages; ++rank) {
        const auto at = static_cast<std::size_t>(rank);
        EXPECT_EQ(in_flight(one_f_one_b(stages, micros)[at], 0), std::min(stages - rank, micros));
        EXPECT_EQ(in_flight(gpipe(stages, micros)[at], 0), micros);
        EXPECT_EQ(in_flight(forward_only(stages, micros)[at], 0), 1);
      }
    }
  }
}

TEST(Schedules, InFlightCountsEachChunkUntilItsWeightPass) {
  const RankActions actions = from_text("F0 F1 F0.1 I0.1 F1.1 W0.1 B0 I1.1 W1.1 B1");
  EXPECT_EQ(in_flight(actions, 0), 2);
  EXPECT_EQ(in_flight(actions, 1), 2);
  EXPECT_EQ(in_flight(actions, 2), 0);
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
  for (const std::string& name : schedule_names()) {
    for (const RankActions& actions : lower(make_schedule(name, 5, 9), straight(5))) {
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
  const std::string typo = user_error_of([] { make_schedule("1f1", 2, 2); });
  EXPECT_TRUE(has(typo, "nearest known one is 1f1b")) << typo;
  EXPECT_TRUE(has(typo, "gpipe")) << typo;
}

TEST(Schedules, NameThatThisVersionLacksNamesTheOthers) {
  for (const std::string name : {"interleaved", "zero_bubble", "zero_bubble_v", "file"}) {
    const auto names = schedule_names();
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    const std::string message = user_error_of([&] { make_schedule(name, 2, 2); });
    EXPECT_TRUE(has(message, name + " is not in this version; use one of: gpipe, 1f1b")) << message;
  }
}

TEST(Schedules, WithoutStagesOrMicrosAreRefused) {
  EXPECT_THROW(one_f_one_b(0, 1), Error);
  EXPECT_THROW(gpipe(1, 0), Error);
  EXPECT_THROW(forward_only(-1, 1), Error);
}

TEST(Placements, SayWhichPartLiesWhere) {
  Placement v;
  v.parts = {{0, 0}, {1, 0}, {1, 1}, {0, 1}};
  v.num_ranks = 2;
  EXPECT_EQ(v.part_at(0, 1), 3);
  EXPECT_EQ(v.part_at(1, 1), 2);
  EXPECT_EQ(v.num_chunks(0), 2);
  EXPECT_EQ(straight(3).part_at(2, 0), 2);
  EXPECT_EQ(straight(3).num_chunks(2), 1);
  EXPECT_THROW(v.part_at(2, 0), Error);
}

}  // namespace
}  // namespace orthant
