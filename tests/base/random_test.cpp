#include "base/random.h"

#include <array>
#include <cmath>
#include <set>

#include <gtest/gtest.h>

namespace orthant {
namespace {

// The known answers of Random123 (kat_vectors, philox4x32 with 10 rounds).
TEST(Random, PhiloxGivesTheKnownAnswers) {
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox(0, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~0ull, ~0ull, ~0ull), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822ull, 0x0370734413198a2eull, 0x85a308d3243f6a88ull),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, UniformNeverReachesZeroOrOne) {
  EXPECT_GT(uniform(0), 0.0);
  EXPECT_LT(uniform(0xffffffffu), 1.0);
}

TEST(Random, NormalHasMeanZeroAndVarianceOne) {
  constexpr int kDraws = 100000;
  double sum = 0;
  double squares = 0;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const double x = normal(1, 2, i);
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kDraws, 0, 0.01);
  EXPECT_NEAR(squares / kDraws, 1, 0.02);
}

TEST(Random, SeedStreamAndIndexEachGiveOtherBits) {
  std::set<std::array<std::uint32_t, 4>> seen;
  for (std::uint64_t i = 0; i < 10; ++i) {
    for (std::uint64_t j = 0; j < 10; ++j) {
      for (std::uint64_t k = 0; k < 10; ++k) {
        seen.insert(philox(i, j, k));
      }
    }
  }
  EXPECT_EQ(seen.size(), 1000u);
}

TEST(Random, StreamsFollowFromNames) {
  static_assert(stream_of("") == 0xcbf29ce484222325ull);
  static_assert(stream_of("a") == 0xaf63dc4c8601ec8cull);
  EXPECT_NE(stream_of("h.0.mlp.up.weight"), stream_of("h.1.mlp.up.weight"));
}

}  // namespace
}  // namespace orthant
