// How the update keeps moments: in f32, or in bf16, rounded by chance as ops/random_rounding.h
// says.
#pragma once

#include <cstdint>

#include "ops/cuda/kernel.cuh"
#include "ops/cuda/philox.cuh"
#include "ops/random_rounding.h"
#include "ops/update.h"

namespace orthant::cuda {

template <class M>
struct MomentRounding;

template <>
struct MomentRounding<float> {
  explicit MomentRounding(const AdamW& /*a*/) {}
  __device__ void begin(const StepState& /*state*/) {}
  template <int W>
  __device__ void store_moments(float* m_at, const Values<W>& m, float* v_at, const Values<W>& v,
                                std::int64_t /*i*/) const {
    store<W>(m_at, m);
    store<W>(v_at, v);
  }
};

// The words of elements that follow each other in a rank's part, in the order of asking.
class RoundingWords {
 public:
  __device__ RoundingWords(const ElementPlaces& places, std::int64_t i, std::uint64_t seed,
                           std::uint64_t stream)
      : seed_(seed),
        stream_(stream),
        row_(places.row),
        skips_(places.stride - places.row) {
    const std::int64_t at = places.first + i;
    in_row_ = at % row_;
    element_ = static_cast<std::uint64_t>(at / row_ * places.stride + in_row_ + places.offset);
    words_ = philox_words(seed_, stream_, element_ / 4);
  }

  __device__ std::uint32_t next() {
    const std::uint32_t word = word_of(words_, element_);
    const std::uint64_t block = element_ / 4;
    ++element_;
    if (++in_row_ == row_) {
      in_row_ = 0;
      element_ += static_cast<std::uint64_t>(skips_);
    }
    if (element_ / 4 != block) words_ = philox_words(seed_, stream_, element_ / 4);
    return word;
  }

 private:
  std::uint64_t seed_;
  std::uint64_t stream_;
  std::int64_t row_;
  std::int64_t skips_;  // elements of the whole between two rows
  std::int64_t in_row_;
  std::uint64_t element_;
  uint4 words_;
};

// round_by_chance() of random_rounding.h.
__device__ inline BF16 round_by_chance_bits(float value, std::uint32_t chance) {
  const std::uint32_t word = __float_as_uint(value);
  const std::uint32_t upper = isnan(value) ? (word >> 16) | 0x40u : (word + chance) >> 16;
  return __ushort_as_bfloat16(static_cast<unsigned short>(upper));
}

template <>
struct MomentRounding<BF16> {
  explicit MomentRounding(const AdamW& a) : places(a.places), stream(a.stream) {}

  ElementPlaces places;
  std::uint64_t stream;
  std::uint64_t seed = 0;

  // stream becomes rounding_stream() of the step.
  __device__ void begin(const StepState& state) {
    seed = state.seed;
    stream ^= kRoundingSite ^ (static_cast<std::uint64_t>(state.step) * 0x9E3779B97F4A7C15ull);
  }
  template <int W>
  __device__ void store_moments(BF16* m_at, const Values<W>& m, BF16* v_at, const Values<W>& v,
                                std::int64_t i) const {
    RoundingWords words(places, i, seed, stream);
    Raw<W, BF16> m_raw;
    Raw<W, BF16> v_raw;
    constexpr int kEach = Raw<W, BF16>::kEach;
#pragma unroll
    for (int k = 0; k < W; ++k) {
      const std::uint32_t word = words.next();
      m_raw.words[k / kEach].elements[k % kEach] = round_by_chance_bits(m.at[k], word & 0xffffu);
      v_raw.words[k / kEach].elements[k % kEach] = round_by_chance_bits(v.at[k], word >> 16);
    }
    store_raw<W>(m_at, m_raw);
    store_raw<W>(v_at, v_raw);
  }
};

}  // namespace orthant::cuda
