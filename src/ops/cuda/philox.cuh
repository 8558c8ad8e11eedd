// The words of base/random.h and the rule of ops/dropout.h on the device.
#pragma once

#include <cstdint>

#include "ops/dropout.h"
#include "ops/step_state.h"

namespace orthant::cuda {

__device__ inline uint4 philox_words(std::uint64_t seed, std::uint64_t stream,
                                     std::uint64_t index) {
  uint4 x =
      make_uint4(static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                 static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32));
  auto key0 = static_cast<std::uint32_t>(seed);
  auto key1 = static_cast<std::uint32_t>(seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const std::uint32_t high0 = __umulhi(0xD2511F53u, x.x);
    const std::uint32_t low0 = 0xD2511F53u * x.x;
    const std::uint32_t high1 = __umulhi(0xCD9E8D57u, x.z);
    const std::uint32_t low1 = 0xCD9E8D57u * x.z;
    x = make_uint4(high1 ^ x.y ^ key0, low1, high0 ^ x.w ^ key1, low0);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return x;
}

// That of an element, of the words of block element / 4.
__device__ inline std::uint32_t word_of(const uint4& words, std::uint64_t element) {
  return element % 4 == 0   ? words.x
         : element % 4 == 1 ? words.y
         : element % 4 == 2 ? words.z
                            : words.w;
}

// One dropout of a model; which step it is lies on the device.
struct DropoutRule {
  const StepState* state;
  std::uint64_t site;
  std::uint32_t threshold;
  float scale;  // of what is kept: 1 / (1 - p)

  struct Step {
    std::uint64_t seed;
    std::uint64_t stream;
  };
  __device__ Step of_step() const {
    return {state->seed, site ^ (static_cast<std::uint64_t>(state->step) * 0x9E3779B97F4A7C15ull)};
  }
  // Which of W neighbours are kept. With W above 1, a multiple of 4, so is `first`.
  template <int W>
  __device__ void keep(const Step& step, std::uint64_t first, bool* keeps) const {
    if constexpr (W == 1) {
      keeps[0] = word_of(philox_words(step.seed, step.stream, first / 4), first) >= threshold;
    } else {
#pragma unroll
      for (int k = 0; k < W; k += 4) {
        const uint4 words = philox_words(step.seed, step.stream, first / 4 + k / 4);
        keeps[k] = words.x >= threshold;
        keeps[k + 1] = words.y >= threshold;
        keeps[k + 2] = words.z >= threshold;
        keeps[k + 3] = words.w >= threshold;
      }
    }
  }
  // scale where `element` is kept, else 0.
  __device__ float factor(const Step& step, std::uint64_t element) const {
    bool keeps = false;
    keep<1>(step, element, &keeps);
    return keeps ? scale : 0.0F;
  }
};

inline DropoutRule make_dropout_rule(const Tensor& state, std::uint64_t site, double p) {
  return {.state = state.ptr<const StepState>(),
          .site = site,
          .threshold = dropout_threshold(p),
          .scale = static_cast<float>(1 / (1 - p))};
}

}  // namespace orthant::cuda
