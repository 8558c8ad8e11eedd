// The exact sum: order and grouping change no bit, and the result is rounded once.
#include "ops/exact_sum.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"

namespace orthant {
namespace {

using Limbs = std::array<std::int64_t, kNormLimbs>;

double sum_of(std::span<const double> terms) {
  Limbs limbs{};
  for (const double term : terms) {
    add_exactly(limbs, term);
  }
  return exact_value(limbs);
}

// Magnitudes from 2^-140 to 2^70: squares over most of the limbs.
std::vector<float> wild_gradient(std::size_t count) {
  std::vector<float> g(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto word = philox(20240229, 1, i);
    g[i] = std::ldexp(static_cast<float>(normal(20240229, 2, i)),
                      static_cast<int>(word[0] % 210) - 140);
  }
  return g;
}

TEST(ExactSum, SmallSumsAreTheSumsOfDoubles) {
  EXPECT_EQ(sum_of(std::array{0.0}), 0);
  EXPECT_EQ(sum_of(std::array{1.0}), 1);
  EXPECT_EQ(sum_of(std::array{0.1, 0.2}), 0.1 + 0.2);
  EXPECT_EQ(sum_of(std::array{3.0, 5.0, 1e-5}), 8.00001);
}

TEST(ExactSum, OneTermComesBackWithEveryBit) {
  for (std::uint64_t i = 0; i < 5000; ++i) {
    const auto word = philox(20240229, 3, i);
    const double mantissa = 1 + uniform(word[0]) + std::ldexp(uniform(word[1]), -32);
    const double term = std::ldexp(mantissa, static_cast<int>(word[2] % 427) - 268);
    EXPECT_EQ(sum_of(std::array{term}), term) << "term " << i;
  }
}

TEST(ExactSum, TheSmallestAndLargestTermsAreKept) {
  const double smallest = 0x1p-298;  // the square of the smallest f32
  const double largest = 0x1.fffffffffffffp159;
  EXPECT_EQ(sum_of(std::array{smallest}), smallest);
  EXPECT_EQ(sum_of(std::array{0x1p-320}), 0x1p-320);
  EXPECT_EQ(sum_of(std::array{largest}), largest);
  EXPECT_EQ(sum_of(std::array{largest, largest}), 2 * largest);
  // The small term is not lost: it breaks the tie between two neighbours.
  EXPECT_EQ(sum_of(std::array{1.0, 0x1p-53}), 1);
  EXPECT_EQ(sum_of(std::array{1.0, 0x1p-53, smallest}), 1 + 0x1p-52);
}

TEST(ExactSum, CarriesReachTheNextDigits) {
  // 2^24 terms of almost 2^32 units, and one more unit.
  Limbs limbs{};
  for (int i = 0; i < (1 << 24); ++i) {
    add_exactly(limbs, 0xffffffffp-32);
  }
  EXPECT_EQ(exact_value(limbs), 0xffffffffp-8);
  add_exactly(limbs, 0x1p-8);
  EXPECT_EQ(exact_value(limbs), 0x1p24);
  carry_over(limbs);
  EXPECT_EQ(limbs[10], 1 << 24);
  EXPECT_EQ(limbs[9], 0);
  EXPECT_EQ(exact_value(limbs), 0x1p24);
}

TEST(ExactSum, OrderAndGroupingChangeNoBit) {
  const std::vector<float> g = wild_gradient(64 * 501 + 17);
  Limbs whole{};
  add_squares<float>(whole, g);
  const double expected = exact_value(whole);
  carry_over(whole);
  // Ranks own runs of whole blocks; they sum them in any order, and limbs are added as integers.
  for (const std::size_t num_ranks : {2, 3, 7}) {
    Limbs total{};
    const std::size_t num_blocks = (g.size() + kNormBlock - 1) / kNormBlock;
    for (std::size_t rank = num_ranks; rank-- > 0;) {
      Limbs limbs{};
      const std::size_t first = num_blocks * rank / num_ranks * kNormBlock;
      const std::size_t last = std::min(num_blocks * (rank + 1) / num_ranks * kNormBlock, g.size());
      const std::span<const float> mine = std::span(g).subspan(first, last - first);
      const std::size_t half = mine.size() / 2 / kNormBlock * kNormBlock;
      add_squares<float>(limbs, mine.subspan(half));
      add_squares<float>(limbs, mine.first(half));
      if (rank % 2 == 0) carry_over(limbs);
      for (std::size_t i = 0; i < limbs.size(); ++i) {
        total[i] += limbs[i];
      }
    }
    EXPECT_EQ(exact_value(total), expected) << num_ranks << " ranks";
    carry_over(total);
    EXPECT_EQ(total, whole) << num_ranks << " ranks";
  }
}

TEST(ExactSum, MillionsOfTermsStayExact) {
  // Terms are multiples of 2^-40 below 2^10, so integers can add them too.
  Limbs limbs{};
  std::uint64_t low = 0;
  for (std::uint64_t i = 0; i < 3'000'000; ++i) {
    const auto word = philox(20240229, 4, i);
    const std::uint64_t units = (std::uint64_t{word[0]} << 10) | (word[1] & 1023);
    add_exactly(limbs, std::ldexp(static_cast<double>(units), -40));
    low += units;
  }
  EXPECT_EQ(exact_value(limbs), std::ldexp(static_cast<double>(low), -40));
}

TEST(ExactSum, WhatIsNotFiniteIsCounted) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> g(200, 1.0f);
  Limbs limbs{};
  add_squares<float>(limbs, g);
  EXPECT_EQ(exact_value(limbs), 200);
  g[3] = kInfinity;
  g[190] = std::numeric_limits<float>::quiet_NaN();
  limbs = {};
  add_squares<float>(limbs, g);
  EXPECT_EQ(limbs[kNormDigits], 2);
  EXPECT_EQ(exact_value(limbs), std::numeric_limits<double>::infinity());
  // So is a block that leaves the range of the digits: a norm of 2^80.
  limbs = {};
  add_squares<float>(limbs, std::array{0x1p80f});
  EXPECT_EQ(limbs[kNormDigits], 1);
  limbs = {};
  add_squares<float>(limbs, std::array{0x1.fffffep79f});
  EXPECT_EQ(limbs[kNormDigits], 0);
}

}  // namespace
}  // namespace orthant
