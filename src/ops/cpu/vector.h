// Vectors of eight floats: loads and stores of every float type, tails, exp, sums in a fixed order.
// A tail runs the same arithmetic as a full vector, so an element has the same bits in both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>

#include <immintrin.h>

#include "mem/dtype.h"

namespace orthant::cpu {

using F8 = __m256;
using I8 = __m256i;
inline constexpr int kLanes = 8;

// Floats at the start of a cache line, not initialised: pages that are never used cost nothing.
class AlignedFloats {
 public:
  explicit AlignedFloats(std::size_t count)
      : lines_(std::make_unique_for_overwrite<Line[]>((count + 15) / 16)) {}
  float* data() { return lines_[0].values; }

 private:
  struct alignas(64) Line {
    float values[16];
  };
  std::unique_ptr<Line[]> lines_;
};

struct Full {};  // all eight lanes
struct Tail {    // the first `count` lanes, 1..7; the others load as zero and are not stored
  int count;
};

inline F8 load(const float* p, Full = {}) {
  return _mm256_loadu_ps(p);
}
inline F8 load(const BFloat16* p, Full = {}) {
  const __m128i words = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16));
}
inline F8 load(const Half* p, Full = {}) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

inline void store(float* p, F8 v, Full = {}) {
  _mm256_storeu_ps(p, v);
}
// Rounds to nearest even, as BFloat16(float) does.
inline __m128i to_bfloat16(F8 v) {
  const I8 word = _mm256_castps_si256(v);
  const I8 high = _mm256_srli_epi32(word, 16);
  const I8 odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
  const I8 bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
  const I8 rounded = _mm256_srli_epi32(_mm256_add_epi32(word, bias), 16);
  const I8 quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
  const I8 is_nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  const I8 bits = _mm256_blendv_epi8(rounded, quiet, is_nan);
  const I8 packed = _mm256_packus_epi32(bits, bits);
  return _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
}
inline void store(BFloat16* p, F8 v, Full = {}) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), to_bfloat16(v));
}
inline void store(Half* p, F8 v, Full = {}) {
  const __m128i bits = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bits);
}

inline F8 load(const double* p, Full = {}) {
  const __m128 low = _mm256_cvtpd_ps(_mm256_loadu_pd(p));
  return _mm256_set_m128(_mm256_cvtpd_ps(_mm256_loadu_pd(p + 4)), low);
}
inline void store(double* p, F8 v, Full = {}) {
  _mm256_storeu_pd(p, _mm256_cvtps_pd(_mm256_castps256_ps128(v)));
  _mm256_storeu_pd(p + 4, _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)));
}

inline I8 lane_mask(int count) {
  const I8 lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), lane);
}
inline F8 load(const float* p, Tail tail) {
  return _mm256_maskload_ps(p, lane_mask(tail.count));
}
inline void store(float* p, F8 v, Tail tail) {
  _mm256_maskstore_ps(p, lane_mask(tail.count), v);
}
template <class T>
requires(!std::is_same_v<T, float>) inline F8 load(const T* p, Tail tail) {
  T whole[kLanes] = {};
  std::memcpy(whole, p, static_cast<std::size_t>(tail.count) * sizeof(T));
  return load(whole);
}
template <class T>
requires(!std::is_same_v<T, float>) inline void store(T* p, F8 v, Tail tail) {
  T whole[kLanes];
  store(whole, v);
  std::memcpy(p, whole, static_cast<std::size_t>(tail.count) * sizeof(T));
}

// Calls body(first element, lanes) for each vector of n elements.
template <class Body>
inline void for_vectors(std::int64_t n, Body&& body) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    body(i, Full{});
  }
  if (i < n) {
    body(i, Tail{static_cast<int>(n - i)});
  }
}

// The element as a float.
inline float value_of(float x) {
  return x;
}
inline float value_of(BFloat16 x) {
  return static_cast<float>(x);
}
inline float value_of(Half x) {
  return _cvtsh_ss(x.bits);
}

inline F8 splat(float x) {
  return _mm256_set1_ps(x);
}
inline F8 zero() {
  return _mm256_setzero_ps();
}
inline F8 fma(F8 a, F8 b, F8 c) {
  return _mm256_fmadd_ps(a, b, c);
}
inline F8 negative_fma(F8 a, F8 b, F8 c) {
  return _mm256_fnmadd_ps(a, b, c);
}  // c - a b
inline F8 max(F8 a, F8 b) {
  return _mm256_max_ps(a, b);
}
inline F8 min(F8 a, F8 b) {
  return _mm256_min_ps(a, b);
}
inline F8 select(F8 mask, F8 yes, F8 no) {
  return _mm256_blendv_ps(no, yes, mask);
}
// Replaces the lanes that a tail does not have.
inline F8 keep(F8 v, F8 /*other*/, Full) {
  return v;
}
inline F8 keep(F8 v, F8 other, Tail tail) {
  return select(_mm256_castsi256_ps(lane_mask(tail.count)), v, other);
}

inline float sum(F8 v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
inline float largest(F8 v) {
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

// e^x within 1 ulp; 0 below -87.7 (-inf too), e^88 from there on, NaN for NaN.
inline F8 exp(F8 x) {
  // max and min give their second operand when one is not a number.
  const F8 bounded = min(splat(88.0F), max(splat(-88.0F), x));
  // Adding 1.5 * 2^23 rounds to an integer, 127 more makes its low bits the exponent of 2^n.
  const F8 shift = splat(0x1.8p23F + 127.0F);
  const F8 shifted = fma(bounded, splat(0x1.715476p+0F), shift);
  const F8 scale = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(shifted), 23));
  const F8 n = shifted - shift;
  F8 r = negative_fma(n, splat(0x1.62e400p-1F), bounded);
  r = negative_fma(n, splat(0x1.7f7d1cp-20F), r);
  F8 p = splat(0x1.a01a02p-13F);
  p = fma(p, r, splat(0x1.6c16c2p-10F));
  p = fma(p, r, splat(0x1.111112p-7F));
  p = fma(p, r, splat(0x1.555556p-5F));
  p = fma(p, r, splat(0x1.555556p-3F));
  p = fma(p, r, splat(0.5F));
  p = fma(r * r, p, r);  // e^r - 1
  return fma(p, scale, scale);
}

}  // namespace orthant::cpu
