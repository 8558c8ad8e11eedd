// Vectors of sixteen lanes, by AVX-512. vector_avx2.h has the same names; vector.h says more.
#pragma once

#include <bit>
#include <cstdint>

#include <immintrin.h>

#include "mem/dtype.h"

namespace orthant::cpu::avx512 {

inline constexpr int kLanes = 16;
using Floats = __m512;
using Doubles = __m512d;  // half as many lanes
using Ints __attribute__((vector_size(4 * kLanes))) = std::uint32_t;
using Longs __attribute__((vector_size(4 * kLanes))) = std::uint64_t;
using Mask = __mmask16;

inline Mask first_lanes(int count) {
  return static_cast<Mask>((1U << static_cast<unsigned>(count)) - 1U);
}

inline Floats widened(__m256i upper_halves) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(upper_halves), 16));
}
inline Floats joined(__m256 low, __m256 high) {
  return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}
inline Floats load(const float* p) {
  return _mm512_loadu_ps(p);
}
inline Floats load(const Half* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Floats load(const double* p) {
  return joined(_mm512_cvtpd_ps(_mm512_loadu_pd(p)), _mm512_cvtpd_ps(_mm512_loadu_pd(p + 8)));
}
// Upper halves of floats.
inline Floats load(const BFloat16* p) {
  return widened(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

inline __m256i halves(Floats v) {
  return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline Doubles low_half(Floats v) {
  return _mm512_cvtps_pd(_mm512_castps512_ps256(v));
}
inline Doubles high_half(Floats v) {
  return _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
}
inline void store(float* p, Floats v) {
  _mm512_storeu_ps(p, v);
}
inline void store(Half* p, Floats v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), halves(v));
}
inline void store(double* p, Floats v) {
  _mm512_storeu_pd(p, low_half(v));
  _mm512_storeu_pd(p + 8, high_half(v));
}
// The low half of each word, all below 2^16.
inline void store_low(BFloat16* p, Ints words) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16((__m512i)words));
}

// The first `count` lanes; the others load as zero and are not stored.
inline Floats load_first(const float* p, int count) {
  return _mm512_maskz_loadu_ps(first_lanes(count), p);
}
inline Floats load_first(const Half* p, int count) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(count), p));
}
inline Floats load_first(const double* p, int count) {
  const Mask mask = first_lanes(count);
  const __m512d low = _mm512_maskz_loadu_pd(static_cast<__mmask8>(mask), p);
  const __m512d high = _mm512_maskz_loadu_pd(static_cast<__mmask8>(mask >> 8), p + 8);
  return joined(_mm512_cvtpd_ps(low), _mm512_cvtpd_ps(high));
}
inline Floats load_first(const BFloat16* p, int count) {
  return widened(_mm256_maskz_loadu_epi16(first_lanes(count), p));
}
inline void store_first(float* p, Floats v, int count) {
  _mm512_mask_storeu_ps(p, first_lanes(count), v);
}
inline void store_first(Half* p, Floats v, int count) {
  _mm256_mask_storeu_epi16(p, first_lanes(count), halves(v));
}
inline void store_first(double* p, Floats v, int count) {
  const Mask mask = first_lanes(count);
  _mm512_mask_storeu_pd(p, static_cast<__mmask8>(mask), low_half(v));
  _mm512_mask_storeu_pd(p + 8, static_cast<__mmask8>(mask >> 8), high_half(v));
}
inline void store_low_first(BFloat16* p, Ints words, int count) {
  _mm256_mask_storeu_epi16(p, first_lanes(count), _mm512_cvtepi32_epi16((__m512i)words));
}

inline Floats splat(float x) {
  return _mm512_set1_ps(x);
}
inline Doubles splat_double(double x) {
  return _mm512_set1_pd(x);
}
inline Floats fma(Floats a, Floats b, Floats c) {
  return _mm512_fmadd_ps(a, b, c);
}
inline Doubles fma(Doubles a, Doubles b, Doubles c) {
  return _mm512_fmadd_pd(a, b, c);
}
// c - a b
inline Floats negative_fma(Floats a, Floats b, Floats c) {
  return _mm512_fnmadd_ps(a, b, c);
}
inline Doubles negative_fma(Doubles a, Doubles b, Doubles c) {
  return _mm512_fnmadd_pd(a, b, c);
}
// The second where one is not a number.
inline Floats max(Floats a, Floats b) {
  return _mm512_max_ps(a, b);
}
inline Floats min(Floats a, Floats b) {
  return _mm512_min_ps(a, b);
}
inline Floats sqrt(Floats v) {
  return _mm512_sqrt_ps(v);
}

inline Floats select(Mask mask, Floats yes, Floats no) {
  return _mm512_mask_blend_ps(mask, no, yes);
}
// Zero in the other lanes.
inline Floats only(Mask mask, Floats v) {
  return _mm512_maskz_mov_ps(mask, v);
}
inline Mask is_nan(Floats v) {
  return _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
}
inline Mask is_not_zero(Floats v) {
  return _mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_NEQ_OQ);
}
inline Mask at_least(Ints a, Ints b) {
  return _mm512_cmpge_epu32_mask((__m512i)a, (__m512i)b);
}
inline int count(Mask mask) {
  return std::popcount(static_cast<unsigned>(mask));
}

inline Floats to_floats(Ints numbers) {
  return _mm512_cvtepi32_ps((__m512i)numbers);
}
inline Floats join(Doubles low, Doubles high) {
  return joined(_mm512_cvtpd_ps(low), _mm512_cvtpd_ps(high));
}

inline float sum(Floats v) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
inline float largest(Floats v) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

// Lane j of vector i becomes lane i of vector j.
inline void transpose(Floats (&r)[kLanes]) {
  // Squares of 4 x 4 within 128 bits, then a square of 4 x 4 of those.
  for (int i = 0; i < 16; i += 4) {
    const Floats a = _mm512_unpacklo_ps(r[i], r[i + 1]);
    const Floats b = _mm512_unpackhi_ps(r[i], r[i + 1]);
    const Floats c = _mm512_unpacklo_ps(r[i + 2], r[i + 3]);
    const Floats d = _mm512_unpackhi_ps(r[i + 2], r[i + 3]);
    r[i] = _mm512_shuffle_ps(a, c, 0x44);
    r[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
    r[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
    r[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
  }
  Floats s[16];
  for (int i = 0; i < 4; ++i) {
    const Floats even0 = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
    const Floats odd0 = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
    const Floats even1 = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
    const Floats odd1 = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
    s[i] = _mm512_shuffle_f32x4(even0, even1, 0x88);
    s[i + 4] = _mm512_shuffle_f32x4(odd0, odd1, 0x88);
    s[i + 8] = _mm512_shuffle_f32x4(even0, even1, 0xdd);
    s[i + 12] = _mm512_shuffle_f32x4(odd0, odd1, 0xdd);
  }
  for (int i = 0; i < 16; ++i) {
    r[i] = s[i];
  }
}

// Products of 32 bits: their low and high halves.
inline void wide_product(Ints x, std::uint32_t factor, Ints& low, Ints& high) {
  const __m512i f = _mm512_set1_epi32(static_cast<int>(factor));
  const __m512i even = _mm512_mul_epu32((__m512i)x, f);
  const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64((__m512i)x, 32), f);
  low = (Ints)_mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32));
  high = (Ints)_mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd);
}

// Stores lane 0 of the four vectors, lane 1 of them, and so on.
inline void store_by_lanes(std::uint32_t* to, const Ints (&x)[4]) {
  const __m512i a = _mm512_unpacklo_epi32((__m512i)x[0], (__m512i)x[1]);
  const __m512i b = _mm512_unpackhi_epi32((__m512i)x[0], (__m512i)x[1]);
  const __m512i c = _mm512_unpacklo_epi32((__m512i)x[2], (__m512i)x[3]);
  const __m512i d = _mm512_unpackhi_epi32((__m512i)x[2], (__m512i)x[3]);
  const __m512i s0 = _mm512_unpacklo_epi64(a, c);             // lanes 0, 4, 8, 12
  const __m512i s1 = _mm512_unpackhi_epi64(a, c);             // lanes 1, 5, 9, 13
  const __m512i s2 = _mm512_unpacklo_epi64(b, d);             // lanes 2, 6, 10, 14
  const __m512i s3 = _mm512_unpackhi_epi64(b, d);             // lanes 3, 7, 11, 15
  const __m512i low01 = _mm512_shuffle_i32x4(s0, s1, 0x44);   // lanes 0, 4, 1, 5
  const __m512i low23 = _mm512_shuffle_i32x4(s2, s3, 0x44);   // lanes 2, 6, 3, 7
  const __m512i high01 = _mm512_shuffle_i32x4(s0, s1, 0xee);  // lanes 8, 12, 9, 13
  const __m512i high23 = _mm512_shuffle_i32x4(s2, s3, 0xee);  // lanes 10, 14, 11, 15
  _mm512_storeu_si512(to, _mm512_shuffle_i32x4(low01, low23, 0x88));
  _mm512_storeu_si512(to + 16, _mm512_shuffle_i32x4(low01, low23, 0xdd));
  _mm512_storeu_si512(to + 32, _mm512_shuffle_i32x4(high01, high23, 0x88));
  _mm512_storeu_si512(to + 48, _mm512_shuffle_i32x4(high01, high23, 0xdd));
}

}  // namespace orthant::cpu::avx512
