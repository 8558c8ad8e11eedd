// Which elements dropout keeps: a function of seed, step, site and the element's global index
// alone, so that it does not depend on layout, micro-batch, threads or device. Only cuDNN, where it
// computes attention, has others: see cuda/attention_seed.h.
#pragma once

#include <cstdint>

#include "base/random.h"

namespace orthant {

// Keeps when the element's 32-bit word is at least this.
inline std::uint32_t dropout_threshold(double p) {
  return static_cast<std::uint32_t>(p * 0x1p32);
}

inline std::uint64_t dropout_stream(std::uint64_t site, std::int64_t step) {
  return site ^ (static_cast<std::uint64_t>(step) * 0x9E3779B97F4A7C15ull);
}

// Four neighbouring elements share one Philox block: element e is word e % 4 of block e / 4.
// Element index of Dropout:   (sample * S + s) * C + c.
// Element index of attention: ((sample * all heads + head) * S + query) * S + key.
inline bool dropout_keeps(std::uint64_t seed, std::uint64_t stream, std::uint64_t element,
                          std::uint32_t threshold) {
  return philox(seed, stream, element / 4)[element % 4] >= threshold;
}

}  // namespace orthant
