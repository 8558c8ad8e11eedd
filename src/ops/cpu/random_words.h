// The random words of a run of neighbouring elements: philox() of base/random.h on eight counters
// at a time. Element e has word e % 4 of block e / 4.
#pragma once

#include <cstdint>

#include "ops/cpu/vector.h"
#include "ops/dropout.h"
#include "ops/step_state.h"

namespace orthant::cpu {

inline constexpr std::int64_t kWordsAtOnce = 32;  // eight blocks of four words

// Eight products of 32 bits: their low and high halves.
inline void wide_product(I8 x, std::uint32_t factor, I8& low, I8& high) {
  const I8 f = _mm256_set1_epi32(static_cast<int>(factor));
  const I8 even = _mm256_mul_epu32(x, f);
  const I8 odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), f);
  low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
  high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
}

// Words of blocks `block` .. `block` + 7, in the order of their elements.
inline void random_words(std::uint64_t seed, std::uint64_t stream, std::uint64_t block,
                         std::uint32_t* words) {
  const I8 lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  I8 x0 = _mm256_add_epi32(_mm256_set1_epi32(static_cast<int>(block)), lane);
  // The upper half is one more where the lower half has wrapped: where it is below its lane.
  const I8 wrapped = _mm256_cmpgt_epi32(lane, _mm256_min_epu32(x0, lane));
  I8 x1 = _mm256_sub_epi32(_mm256_set1_epi32(static_cast<int>(block >> 32)), wrapped);
  I8 x2 = _mm256_set1_epi32(static_cast<int>(static_cast<std::uint32_t>(stream)));
  I8 x3 = _mm256_set1_epi32(static_cast<int>(static_cast<std::uint32_t>(stream >> 32)));
  auto key0 = static_cast<std::uint32_t>(seed);
  auto key1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    I8 low0, high0, low1, high1;
    wide_product(x0, 0xD2511F53u, low0, high0);
    wide_product(x2, 0xCD9E8D57u, low1, high1);
    x0 = _mm256_xor_si256(_mm256_xor_si256(high1, x1), _mm256_set1_epi32(static_cast<int>(key0)));
    x1 = low1;
    x2 = _mm256_xor_si256(_mm256_xor_si256(high0, x3), _mm256_set1_epi32(static_cast<int>(key1)));
    x3 = low0;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  // Word j of block i becomes element 4 i + j.
  const I8 a = _mm256_unpacklo_epi32(x0, x1);
  const I8 b = _mm256_unpackhi_epi32(x0, x1);
  const I8 c = _mm256_unpacklo_epi32(x2, x3);
  const I8 d = _mm256_unpackhi_epi32(x2, x3);
  const I8 even0 = _mm256_unpacklo_epi64(a, c);  // blocks 0 and 4
  const I8 even1 = _mm256_unpackhi_epi64(a, c);  // blocks 1 and 5
  const I8 odd0 = _mm256_unpacklo_epi64(b, d);   // blocks 2 and 6
  const I8 odd1 = _mm256_unpackhi_epi64(b, d);   // blocks 3 and 7
  auto* out = reinterpret_cast<I8*>(words);
  _mm256_storeu_si256(out + 0, _mm256_permute2x128_si256(even0, even1, 0x20));
  _mm256_storeu_si256(out + 1, _mm256_permute2x128_si256(odd0, odd1, 0x20));
  _mm256_storeu_si256(out + 2, _mm256_permute2x128_si256(even0, even1, 0x31));
  _mm256_storeu_si256(out + 3, _mm256_permute2x128_si256(odd0, odd1, 0x31));
}

// Fills `buffer` (count + 2 * kWordsAtOnce words) and returns where the word of `element` is.
inline const std::uint32_t* words_of(std::uint64_t seed, std::uint64_t stream,
                                     std::uint64_t element, std::int64_t count,
                                     std::uint32_t* buffer) {
  const auto skipped = static_cast<std::int64_t>(element % 4);
  for (std::int64_t i = 0; i < skipped + count; i += kWordsAtOnce) {
    random_words(seed, stream, element / 4 + static_cast<std::uint64_t>(i) / 4, buffer + i);
  }
  return buffer + skipped;
}

// One dropout of one step.
struct DropoutRule {
  std::uint64_t seed;
  std::uint64_t stream;
  std::uint32_t threshold;
  float scale;  // of what is kept: 1 / (1 - p)

  const std::uint32_t* words(std::uint64_t element, std::int64_t count,
                             std::uint32_t* buffer) const {
    return words_of(seed, stream, element, count, buffer);
  }

  // scale where the word keeps its element, else 0.
  F8 factors(const std::uint32_t* word) const {
    const I8 bits = _mm256_loadu_si256(reinterpret_cast<const I8*>(word));
    const I8 limit = _mm256_set1_epi32(static_cast<int>(threshold));
    const I8 kept = _mm256_cmpeq_epi32(_mm256_max_epu32(bits, limit), bits);
    return _mm256_and_ps(_mm256_castsi256_ps(kept), splat(scale));
  }
};

inline DropoutRule make_dropout_rule(const StepState& state, std::uint64_t site, double p) {
  return {.seed = state.seed,
          .stream = dropout_stream(site, state.step),
          .threshold = dropout_threshold(p),
          .scale = static_cast<float>(1 / (1 - p))};
}

}  // namespace orthant::cpu
