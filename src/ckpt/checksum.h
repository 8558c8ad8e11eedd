// The checksum of a tensor, in parts: the sum of those of any parts that make it up.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

namespace orthant {

// Sum modulo 2^64 of a mix of each element's bits and its index in the flattened tensor, `first`
// that of values[0]. For an index the mix is a bijection of the bits, so no single change goes
// unseen; others do with a chance of 2^-64.
inline std::uint64_t checksum(std::span<const float> values, std::int64_t first) {
  std::uint64_t sum = 0;
  auto index = static_cast<std::uint64_t>(first);
  for (const float value : values) {
    std::uint64_t mix = std::bit_cast<std::uint32_t>(value) + ++index * 0x9e3779b97f4a7c15;
    mix = (mix ^ mix >> 29) * 0xbf58476d1ce4e5b9;
    sum += mix ^ mix >> 32;
  }
  return sum;
}

}  // namespace orthant
