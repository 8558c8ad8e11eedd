// Schedules of several chunks and of split backwards, written by hand, for the tests.
#pragma once

#include <string_view>
#include <vector>

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
      .placement = {.parts = {{0, 0}, {1, 0}, {0, 1}, {1, 1}}, .num_ranks = 2}};
}

// The second chunks run back: rank 1 has two neighbouring parts, rank 0 the first and the last.
inline HandMade v_2x2() {
  return {.compute =
              schedule_of({"F0 F1 F0.1 B0.1 F1.1 B1.1 B0 B1", "F0 F0.1 F1 F1.1 B0.1 B0 B1.1 B1"}),
          .placement = {.parts = {{0, 0}, {1, 0}, {1, 1}, {0, 1}}, .num_ranks = 2}};
}

// Backwards in two halves; the weight passes fill what would be idle.
inline HandMade split_3x4() {
  return {.compute = schedule_of({"F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3",
                                  "F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3",
                                  "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3"}),
          .placement = straight(3)};
}

}  // namespace orthant
