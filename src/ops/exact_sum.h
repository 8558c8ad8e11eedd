// Exact sums of squares, shared by all backends: a fixed-point number of 32-bit digits in i64
// limbs, so that neither the order nor the grouping of its terms changes a bit. See update.h.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "ops/update.h"

namespace orthant {

using NormLimbs = std::span<std::int64_t, kNormLimbs>;
using ConstNormLimbs = std::span<const std::int64_t, kNormLimbs>;

inline constexpr int kNormDigits = kNormLimbs - 1;  // limbs that hold digits
inline constexpr int kNormDigitBits = 32;           // of a digit that is carried over
inline constexpr int kNormUnitExponent = -320;
inline constexpr double kNormUnit = 0x1p-320;      // what limb 0 counts
inline constexpr double kNormTermLimit = 0x1p160;  // terms from here on count as not finite
inline constexpr std::uint64_t kNormDigitMask = 0xffffffffull;

// Adds a term that is a multiple of 2^-320 and not negative, as a sum of squares of f32 is. A limb
// takes 2^31 terms before its digit must be carried over.
inline void add_exactly(NormLimbs limbs, double term) {
  if (!(term < kNormTermLimit)) {
    ++limbs[kNormDigits];
    return;
  }
  if (term < kNormUnit) return;  // zero
  const auto word = std::bit_cast<std::uint64_t>(term);
  const auto biased = static_cast<int>(word >> 52);
  const std::uint64_t mantissa = (word & 0xfffffffffffffull) | 0x10000000000000ull;
  // The mantissa's last bit counts 2^(biased - 1075); its zeros may lie below the last digit.
  const int place = biased - 1075 - kNormUnitExponent;
  const std::uint64_t digits = place < 0 ? mantissa >> -place : mantissa;
  const int at = place < 0 ? 0 : place / kNormDigitBits;
  const int shift = place < 0 ? 0 : place % kNormDigitBits;
  const std::uint64_t low = (digits & kNormDigitMask) << shift;
  const std::uint64_t high = ((digits >> kNormDigitBits) << shift) + (low >> kNormDigitBits);
  const std::uint64_t parts[3] = {low & kNormDigitMask, high & kNormDigitMask,
                                  high >> kNormDigitBits};
  for (int i = 0; i < 3; ++i) {
    if (parts[i] != 0) limbs[at + i] += static_cast<std::int64_t>(parts[i]);
  }
}

// The sum of squares of at most kNormBlock elements, in order. Each square is exact.
template <class T>
inline double block_square_sum(std::span<const T> block) {
  double sum = 0;
  for (const T x : block) {
    const double wide = static_cast<float>(x);
    sum += wide * wide;
  }
  return sum;
}

// Adds the squares of the elements up to the end of the block that g begins in, at place `start`.
// How many they are.
template <class T>
inline std::size_t add_first_squares(NormLimbs limbs, std::span<const T> g, int start) {
  if (start == 0) return 0;
  const std::size_t count = std::min(g.size(), static_cast<std::size_t>(kNormBlock - start));
  add_exactly(limbs, block_square_sum(g.first(count)));
  return count;
}

// Adds the squares of g, which begins with a block, block by block.
template <class T>
inline void add_squares(NormLimbs limbs, std::span<const T> g) {
  constexpr auto kBlock = static_cast<std::size_t>(kNormBlock);
  for (std::size_t first = 0; first < g.size(); first += kBlock) {
    const std::size_t count = g.size() - first < kBlock ? g.size() - first : kBlock;
    add_exactly(limbs, block_square_sum(g.subspan(first, count)));
  }
}

// Carries digits over, so that each is below 2^32 except the last. The value stays.
inline void carry_over(NormLimbs limbs) {
  for (int i = 0; i + 1 < kNormDigits; ++i) {
    limbs[i + 1] += limbs[i] >> kNormDigitBits;
    limbs[i] &= static_cast<std::int64_t>(kNormDigitMask);
  }
}

// The sum, rounded once to the nearest double; infinity when a term was not finite.
inline double exact_value(ConstNormLimbs limbs) {
  if (limbs[kNormDigits] != 0) return std::numeric_limits<double>::infinity();
  std::array<std::int64_t, kNormLimbs> digits;
  std::copy(limbs.begin(), limbs.end(), digits.begin());
  carry_over(digits);
  int at = kNormDigits - 1;
  while (at > 0 && digits[at] == 0)
    --at;
  // The upper 64 bits of the sum, with the last one set when anything follows: so the one rounding,
  // of this integer to a double, is that of the sum.
  auto word = static_cast<std::uint64_t>(digits[at]);
  int exponent = at * kNormDigitBits + kNormUnitExponent;
  std::uint64_t rest = 0;
  while (at > 0) {
    const auto digit = static_cast<std::uint64_t>(digits[--at]);
    const int bits = std::min(std::countl_zero(word), kNormDigitBits);
    const int left = kNormDigitBits - bits;
    word = (word << bits) | (digit >> left);
    rest |= digit & ((std::uint64_t{1} << left) - 1);
    exponent -= bits;
  }
  return std::ldexp(static_cast<double>(word | (rest != 0 ? 1u : 0u)), exponent);
}

}  // namespace orthant
