// Master weights in two halves: the bf16 value, which is the master rounded to nearest even, and
// what it lacks, the difference of both bit patterns in 16 bits. Words are 32 bits, one or a vector
// of them, so that all backends share the arithmetic.
//
// Bit patterns without their sign ascend with the magnitude, and the sign stays on top: so all of
// this holds of negative numbers, of subnormal ones, across exponents, and of masters whose value
// is infinite. The difference lies in -0x8000..0x8000. The last of these, of a master halfway
// between two values that was rounded down to the even one, has no place: such a master loses one
// unit in its last place, which changes nothing of its value.
#pragma once

#include <bit>
#include <cstdint>

#include "mem/dtype.h"

namespace orthant {

// The bits of a master; `upper`: those of its value << 16; `remainder`: its 16 bits.
template <class Word>
constexpr Word joined_master(Word upper, Word remainder) {
  return upper + (remainder ^ 0x8000U) - 0x8000U;
}

// The 16 bits; 0 where the master is not a number, since its value says so.
template <class Word>
constexpr Word master_remainder(Word master, Word upper) {
  const Word difference = master - upper;
  const Word has_no_place = (difference >> 15) & ~(difference >> 16) & 1U;  // 0x8000
  const Word is_nan = (0x7f800000U - (master & 0x7fffffffU)) >> 31;
  return (difference - has_no_place) & (is_nan - 1U) & 0xffffU;
}

inline float joined_master(BFloat16 value, std::int16_t remainder) {
  const std::uint32_t upper = static_cast<std::uint32_t>(value.bits) << 16;
  const std::uint32_t bits = static_cast<std::uint16_t>(remainder);
  return std::bit_cast<float>(joined_master(upper, bits));
}

// Beside BFloat16(master).
inline std::int16_t master_remainder(float master) {
  const std::uint32_t upper = static_cast<std::uint32_t>(BFloat16(master).bits) << 16;
  return static_cast<std::int16_t>(master_remainder(std::bit_cast<std::uint32_t>(master), upper));
}

}  // namespace orthant
