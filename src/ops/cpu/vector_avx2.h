// Vectors of eight lanes, by AVX2 and FMA. vector_avx512.h has the same names; vector.h says more.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "mem/dtype.h"

namespace orthant::cpu::avx2 {

inline constexpr int kLanes = 8;
using Floats = __m256;
using Doubles = __m256d;  // half as many lanes
using Ints __attribute__((vector_size(4 * kLanes))) = std::uint32_t;
using Longs __attribute__((vector_size(4 * kLanes))) = std::uint64_t;
using Mask = __m256i;  // all ones in a lane, or none

inline Mask first_lanes(int count) {
  const Mask lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), lane);
}

inline Floats load(const float* p) {
  return _mm256_loadu_ps(p);
}
inline Floats load(const Half* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline Floats load(const double* p) {
  const __m128 low = _mm256_cvtpd_ps(_mm256_loadu_pd(p));
  return _mm256_set_m128(_mm256_cvtpd_ps(_mm256_loadu_pd(p + 4)), low);
}
// Upper halves of floats.
inline Floats load(const BFloat16* p) {
  const __m128i words = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16));
}

inline void store(float* p, Floats v) {
  _mm256_storeu_ps(p, v);
}
inline void store(Half* p, Floats v) {
  const __m128i bits = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bits);
}
inline void store(double* p, Floats v) {
  _mm256_storeu_pd(p, _mm256_cvtps_pd(_mm256_castps256_ps128(v)));
  _mm256_storeu_pd(p + 4, _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)));
}
// The low half of each word, all below 2^16.
inline void store_low(BFloat16* p, Ints words) {
  const __m256i packed = _mm256_packus_epi32((__m256i)words, (__m256i)words);
  const __m256i joined = _mm256_permute4x64_epi64(packed, 0x08);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(joined));
}

// The first `count` lanes; the others load as zero and are not stored.
inline Floats load_first(const float* p, int count) {
  return _mm256_maskload_ps(p, first_lanes(count));
}
inline void store_first(float* p, Floats v, int count) {
  _mm256_maskstore_ps(p, first_lanes(count), v);
}
template <class T>
inline Floats load_first(const T* p, int count) {
  T whole[kLanes] = {};
  std::memcpy(whole, p, static_cast<std::size_t>(count) * sizeof(T));
  return load(whole);
}
template <class T>
inline void store_first(T* p, Floats v, int count) {
  T whole[kLanes];
  store(whole, v);
  std::memcpy(p, whole, static_cast<std::size_t>(count) * sizeof(T));
}
inline void store_low_first(BFloat16* p, Ints words, int count) {
  BFloat16 whole[kLanes];
  store_low(whole, words);
  std::memcpy(p, whole, static_cast<std::size_t>(count) * sizeof(BFloat16));
}

inline Floats splat(float x) {
  return _mm256_set1_ps(x);
}
inline Doubles splat_double(double x) {
  return _mm256_set1_pd(x);
}
inline Floats fma(Floats a, Floats b, Floats c) {
  return _mm256_fmadd_ps(a, b, c);
}
inline Doubles fma(Doubles a, Doubles b, Doubles c) {
  return _mm256_fmadd_pd(a, b, c);
}
// c - a b
inline Floats negative_fma(Floats a, Floats b, Floats c) {
  return _mm256_fnmadd_ps(a, b, c);
}
inline Doubles negative_fma(Doubles a, Doubles b, Doubles c) {
  return _mm256_fnmadd_pd(a, b, c);
}
// The second where one is not a number.
inline Floats max(Floats a, Floats b) {
  return _mm256_max_ps(a, b);
}
inline Floats min(Floats a, Floats b) {
  return _mm256_min_ps(a, b);
}
inline Floats sqrt(Floats v) {
  return _mm256_sqrt_ps(v);
}

inline Floats select(Mask mask, Floats yes, Floats no) {
  return _mm256_blendv_ps(no, yes, _mm256_castsi256_ps(mask));
}
// Zero in the other lanes.
inline Floats only(Mask mask, Floats v) {
  return _mm256_and_ps(_mm256_castsi256_ps(mask), v);
}
inline Mask is_nan(Floats v) {
  return _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
}
inline Mask is_not_zero(Floats v) {
  return _mm256_castps_si256(_mm256_cmp_ps(v, _mm256_setzero_ps(), _CMP_NEQ_OQ));
}
inline Mask at_least(Ints a, Ints b) {
  return _mm256_cmpeq_epi32(_mm256_max_epu32((__m256i)a, (__m256i)b), (__m256i)a);
}
inline int count(Mask mask) {
  return std::popcount(static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(mask))));
}

inline Floats to_floats(Ints numbers) {
  return _mm256_cvtepi32_ps((__m256i)numbers);
}
inline Doubles low_half(Floats v) {
  return _mm256_cvtps_pd(_mm256_castps256_ps128(v));
}
inline Doubles high_half(Floats v) {
  return _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
}
inline Floats join(Doubles low, Doubles high) {
  return _mm256_set_m128(_mm256_cvtpd_ps(high), _mm256_cvtpd_ps(low));
}

inline float sum(Floats v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
inline float largest(Floats v) {
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

// Lane j of vector i becomes lane i of vector j.
inline void transpose(Floats (&r)[kLanes]) {
  Floats t[8];
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  Floats s[8];
  for (int i = 0; i < 2; ++i) {
    s[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
    s[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
    s[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
    s[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2f128_ps(s[i], s[i + 4], 0x20);
    r[i + 4] = _mm256_permute2f128_ps(s[i], s[i + 4], 0x31);
  }
}

// Products of 32 bits: their low and high halves.
inline void wide_product(Ints x, std::uint32_t factor, Ints& low, Ints& high) {
  const __m256i f = _mm256_set1_epi32(static_cast<int>(factor));
  const __m256i even = _mm256_mul_epu32((__m256i)x, f);
  const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64((__m256i)x, 32), f);
  low = (Ints)_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
  high = (Ints)_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
}

// Stores lane 0 of the four vectors, lane 1 of them, and so on.
inline void store_by_lanes(std::uint32_t* to, const Ints (&x)[4]) {
  const __m256i a = _mm256_unpacklo_epi32((__m256i)x[0], (__m256i)x[1]);
  const __m256i b = _mm256_unpackhi_epi32((__m256i)x[0], (__m256i)x[1]);
  const __m256i c = _mm256_unpacklo_epi32((__m256i)x[2], (__m256i)x[3]);
  const __m256i d = _mm256_unpackhi_epi32((__m256i)x[2], (__m256i)x[3]);
  const __m256i even0 = _mm256_unpacklo_epi64(a, c);  // lanes 0 and 4
  const __m256i even1 = _mm256_unpackhi_epi64(a, c);  // lanes 1 and 5
  const __m256i odd0 = _mm256_unpacklo_epi64(b, d);   // lanes 2 and 6
  const __m256i odd1 = _mm256_unpackhi_epi64(b, d);   // lanes 3 and 7
  auto* out = reinterpret_cast<__m256i*>(to);
  _mm256_storeu_si256(out + 0, _mm256_permute2x128_si256(even0, even1, 0x20));
  _mm256_storeu_si256(out + 1, _mm256_permute2x128_si256(odd0, odd1, 0x20));
  _mm256_storeu_si256(out + 2, _mm256_permute2x128_si256(even0, even1, 0x31));
  _mm256_storeu_si256(out + 3, _mm256_permute2x128_si256(odd0, odd1, 0x31));
}

}  // namespace orthant::cpu::avx2
