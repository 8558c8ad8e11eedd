// Counter-based random bits: a pure function of (seed, stream, index), the same on every rank and
// device. Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace orthant {

// Four independent 32-bit words.
inline std::array<std::uint32_t, 4> philox(std::uint64_t seed, std::uint64_t stream,
                                           std::uint64_t index) {
  std::array<std::uint32_t, 4> x = {
      static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
      static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)};
  auto key0 = static_cast<std::uint32_t>(seed);
  auto key1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = 0xD2511F53ull * x[0];
    const std::uint64_t p1 = 0xCD9E8D57ull * x[2];
    x = {static_cast<std::uint32_t>(p1 >> 32) ^ x[1] ^ key0, static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ x[3] ^ key1, static_cast<std::uint32_t>(p0)};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return x;
}

// Uniform in (0, 1), never 0 or 1.
inline double uniform(std::uint32_t word) {
  return (word + 0.5) * 0x1p-32;
}

// Standard normal by Box-Muller.
inline double normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  constexpr double kTwoPi = 6.283185307179586;
  const std::array<std::uint32_t, 4> word = philox(seed, stream, index);
  return std::sqrt(-2.0 * std::log(uniform(word[0]))) * std::cos(kTwoPi * uniform(word[1]));
}

// A stream number for a name (FNV-1a), so that a tensor's initial value depends on its name, not
// its place.
constexpr std::uint64_t stream_of(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  }
  return hash;
}

}  // namespace orthant
