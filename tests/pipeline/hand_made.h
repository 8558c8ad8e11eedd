// Schedules for the tests: all that a run file can name, and some written by hand.
#pragma once

#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "pipeline/schedule.h"

namespace orthant {

struct HandMade {
  Schedule compute;
  Placement placement;
};

inline Schedule schedule_of(const std::vector<std::string_view>& ranks) {
  Schedule schedule;
  for (const std::string_view text : ranks) {
    schedule.push_back(from_text(text));
  }
  return schedule;
}

// Two ranks, two chunks each, in turn: rank 0 sends to and hears from rank 1 in both chunks.
inline HandMade interleaved_2x4() {
  return {
      .compute = schedule_of({"F0 F1 F0.1 F1.1 F2 B0.1 F3 B1.1 F2.1 B0 F3.1 B1 B2.1 B3.1 B2 B3",
                              "F0 F1 F0.1 B0.1 F1.1 B1.1 F2 B0 F3 B1 F2.1 B2.1 F3.1 B3.1 B2 B3"}),
      .placement = looped(2, 2)};
}

// The second chunks run back: rank 1 has two neighbouring parts, rank 0 the first and the last.
inline HandMade v_2x2() {
  return {.compute =
              schedule_of({"F0 F1 F0.1 B0.1 F1.1 B1.1 B0 B1", "F0 F0.1 F1 F1.1 B0.1 B0 B1.1 B1"}),
          .placement = v_shape(2)};
}

// Backwards in two halves; the weight passes fill what would be idle.
inline HandMade split_3x4() {
  return {.compute = schedule_of({"F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3",
                                  "F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3",
                                  "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3"}),
          .placement = straight(3)};
}

// Every schedule that has a generator on this many ranks; interleaved with each of these numbers of
// chunks.
inline std::vector<ScheduleChoice> choices_of(int ranks, const std::vector<int>& chunks) {
  std::vector<ScheduleChoice> all;
  for (const std::string& name : schedule_names()) {
    if (name == "file") continue;
    for (const int count : name == "interleaved" ? chunks : std::vector<int>{1}) {
      all.push_back({.name = name, .num_ranks = ranks, .num_chunks = count});
    }
  }
  return all;
}

// Every schedule on 1 to `ranks` ranks, with up to `chunks` chunks.
inline std::vector<ScheduleChoice> choices(int ranks, int chunks) {
  std::vector<int> counts(static_cast<std::size_t>(chunks));
  std::iota(counts.begin(), counts.end(), 1);
  std::vector<ScheduleChoice> all;
  for (int count = 1; count <= ranks; ++count) {
    for (ScheduleChoice& choice : choices_of(count, counts)) {
      all.push_back(std::move(choice));
    }
  }
  return all;
}

inline std::string name_of(const ScheduleChoice& choice) {
  return fmt::format("{} on {} ranks, {} chunks", choice.name, choice.num_ranks, choice.num_chunks);
}

}  // namespace orthant
