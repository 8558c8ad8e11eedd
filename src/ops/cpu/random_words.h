// The random words of a run of neighbouring elements: philox() of base/random.h on kLanes
// counters at a time. Element e has word e % 4 of block e / 4.
#pragma once

#include <cstdint>

#include "ops/cpu/vector.h"
#include "ops/dropout.h"
#include "ops/step_state.h"

namespace orthant::cpu::ORTHANT_LEVEL {

inline constexpr std::int64_t kWordsAtOnce = 4 * kLanes;  // four words a block

// Words of blocks `block` .. `block` + kLanes - 1, in the order of their elements.
inline void random_words(std::uint64_t seed, std::uint64_t stream, std::uint64_t block,
                         std::uint32_t* words) {
  const Ints lane = lane_numbers();
  const Ints low_word = splat_word(static_cast<std::uint32_t>(block)) + lane;
  const Ints high_word = splat_word(static_cast<std::uint32_t>(block >> 32));
  // The upper half is one more where the lower half has wrapped: where it is below its lane.
  const Floats carried =
      select(at_least(low_word, lane), floats_of(high_word), floats_of(high_word + 1U));
  Ints x[4] = {low_word, bits_of(carried), splat_word(static_cast<std::uint32_t>(stream)),
               splat_word(static_cast<std::uint32_t>(stream >> 32))};
  auto key0 = static_cast<std::uint32_t>(seed);
  auto key1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    Ints low0, high0, low1, high1;
    wide_product(x[0], 0xD2511F53u, low0, high0);
    wide_product(x[2], 0xCD9E8D57u, low1, high1);
    x[0] = high1 ^ x[1] ^ key0;
    x[1] = low1;
    x[2] = high0 ^ x[3] ^ key1;
    x[3] = low0;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  // Word j of block i is that of element 4 i + j.
  store_by_lanes(words, x);
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
  Floats factors(const std::uint32_t* word) const {
    return only(at_least(load_words(word), splat_word(threshold)), splat(scale));
  }
};

inline DropoutRule make_dropout_rule(const StepState& state, std::uint64_t site, double p) {
  return {.seed = state.seed,
          .stream = dropout_stream(site, state.step),
          .threshold = dropout_threshold(p),
          .scale = static_cast<float>(1 / (1 - p))};
}

}  // namespace orthant::cpu::ORTHANT_LEVEL
