// When a process whose GPU stands still is given up.
#include "comm/look_guard.h"

#include <gtest/gtest.h>

namespace orthant {
namespace {

using Verdict = LookGuard::Verdict;

struct Scene {
  bool looks = true;  // the other thread does
  bool is_at_work = false;
  bool has_failed = false;
  double deadline_s = 2;
};

// Seconds until the first verdict that is not "well", which must be `expected`; 0: none in 30 s.
double seconds_until(Verdict expected, const Scene& scene) {
  LookGuard guard;
  for (int round = 1; round <= 300; ++round) {
    const Verdict found =
        guard.ask(scene.looks ? round : 7, scene.is_at_work, scene.has_failed, scene.deadline_s);
    if (found == Verdict::kWell) continue;
    EXPECT_EQ(found, expected);
    return round * LookGuard::kEveryS;
  }
  return 0;
}

TEST(LookGuard, ALongCallThatIsLookedAtIsLeftAlone) {
  EXPECT_EQ(seconds_until(Verdict::kWell, {.is_at_work = true}), 0);
}

TEST(LookGuard, WhoDoesNotLookForTheDeadlineIsStuck) {
  EXPECT_NEAR(seconds_until(Verdict::kStuck, {.looks = false}), 2.1, 0.15);
  EXPECT_EQ(seconds_until(Verdict::kWell, {.looks = false, .deadline_s = 0}), 0);
}

TEST(LookGuard, AfterAFailureAProcessHasTimeToEnd) {
  const Scene failed = {.has_failed = true};
  EXPECT_EQ(seconds_until(Verdict::kWell, failed), 0);  // its GPU has let go: it frees memory
  EXPECT_NEAR(seconds_until(Verdict::kEnd, {.is_at_work = true, .has_failed = true}), 2.1, 0.15);
  EXPECT_NEAR(seconds_until(Verdict::kEnd, {.looks = false, .has_failed = true}), 2.2, 0.15);
  EXPECT_NEAR(
      seconds_until(Verdict::kEnd, {.is_at_work = true, .has_failed = true, .deadline_s = 600}),
      10.1, 0.15);
}

}  // namespace
}  // namespace orthant
