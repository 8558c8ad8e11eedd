// Rounding to bf16 by chance: the result is one of the two neighbours, each with the probability
// that makes the mean exact. Which elements go up depends on seed, step and place alone, so not on
// layout, threads or device.
#pragma once

#include <bit>
#include <cstdint>

#include "base/random.h"
#include "mem/dtype.h"

namespace orthant {

inline constexpr std::uint64_t kRoundingSite =
    0xD1B54A32D192ED03ull;  // apart from dropout's streams

inline std::uint64_t rounding_stream(std::uint64_t stream, std::int64_t step) {
  return stream ^ kRoundingSite ^ (static_cast<std::uint64_t>(step) * 0x9E3779B97F4A7C15ull);
}

// Element e of a tensor: its lower half is for m, its upper half for v.
inline std::uint32_t rounding_word(std::uint64_t seed, std::uint64_t stream, std::uint64_t e) {
  return philox(seed, stream, e / 4)[e % 4];
}

// `chance`: 16 random bits. Exact values, infinities included, stay as they are.
inline BFloat16 round_by_chance(float value, std::uint32_t chance) {
  if (value != value) return BFloat16(value);
  BFloat16 rounded;
  rounded.bits =
      static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(value) + (chance & 0xffffu)) >> 16);
  return rounded;
}

}  // namespace orthant
