// Vectors of floats as wide as the instructions that a file is compiled for: loads and stores of
// every float type, tails, exp. A tail runs the same arithmetic as a full vector, and every width
// the same arithmetic on an element, so it has the same bits in all of them. What is in a namespace
// named ORTHANT_LEVEL is compiled once for each kind of processor.
#pragma once

#include <cstdint>
#include <cstring>

#include "mem/dtype.h"
#include ORTHANT_VECTOR_HEADER

namespace orthant::cpu::ORTHANT_LEVEL {

struct Full {};  // all lanes
struct Tail {  // the first `count` lanes, at least one; the others load as zero and are not stored
  int count;
};

template <class T>
inline Floats load(const T* p, Full) {
  return load(p);
}
template <class T>
inline Floats load(const T* p, Tail tail) {
  return load_first(p, tail.count);
}

inline Ints bits_of(Floats v) {
  return (Ints)v;
}
inline Floats floats_of(Ints words) {
  return (Floats)words;
}
// The upper halves, rounded to nearest even as BFloat16(float) does.
inline Ints to_bfloat16(Floats v) {
  const Ints word = bits_of(v);
  const Ints high = word >> 16;
  const Ints rounded = (word + 0x7fffU + (high & 1U)) >> 16;
  return bits_of(select(is_nan(v), floats_of(high | 0x40U), floats_of(rounded)));
}

template <class T>
inline void store(T* p, Floats v, Full) {
  store(p, v);
}
template <class T>
inline void store(T* p, Floats v, Tail tail) {
  store_first(p, v, tail.count);
}
inline void store(BFloat16* p, Floats v, Full = {}) {
  store_low(p, to_bfloat16(v));
}
inline void store(BFloat16* p, Floats v, Tail tail) {
  store_low_first(p, to_bfloat16(v), tail.count);
}

// Numbers of 16 bits, as they are.
inline Ints load_halves(const std::uint16_t* p, auto lanes) {
  return bits_of(load(reinterpret_cast<const BFloat16*>(p), lanes)) >> 16;
}
inline void store_halves(std::uint16_t* p, Ints words, Full) {
  store_low(reinterpret_cast<BFloat16*>(p), words);
}
inline void store_halves(std::uint16_t* p, Ints words, Tail tail) {
  store_low_first(reinterpret_cast<BFloat16*>(p), words, tail.count);
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

inline Floats zero() {
  return Floats{};
}
inline Ints splat_word(std::uint32_t x) {
  return Ints{} + x;
}
inline Ints load_words(const std::uint32_t* p) {
  Ints words;
  std::memcpy(&words, p, sizeof(words));
  return words;
}
// 0, 1, 2, ...
inline Ints lane_numbers() {
  Ints numbers{};
  for (int i = 0; i < kLanes; ++i) {
    numbers[i] = static_cast<std::uint32_t>(i);
  }
  return numbers;
}
// Replaces the lanes that a tail does not have.
inline Floats keep(Floats v, Floats /*other*/, Full) {
  return v;
}
inline Floats keep(Floats v, Floats other, Tail tail) {
  return select(first_lanes(tail.count), v, other);
}

// e^x within 1 ulp; 0 below -87.7 (-inf too), e^88 from there on, NaN for NaN.
inline Floats exp(Floats x) {
  // max and min give their second operand when one is not a number.
  const Floats bounded = min(splat(88.0F), max(splat(-88.0F), x));
  // Adding 1.5 * 2^23 rounds to an integer, 127 more makes its low bits the exponent of 2^n.
  const Floats shift = splat(0x1.8p23F + 127.0F);
  const Floats shifted = fma(bounded, splat(0x1.715476p+0F), shift);
  const Floats scale = floats_of(bits_of(shifted) << 23);
  const Floats n = shifted - shift;
  Floats r = negative_fma(n, splat(0x1.62e400p-1F), bounded);
  r = negative_fma(n, splat(0x1.7f7d1cp-20F), r);
  Floats p = splat(0x1.a01a02p-13F);
  p = fma(p, r, splat(0x1.6c16c2p-10F));
  p = fma(p, r, splat(0x1.111112p-7F));
  p = fma(p, r, splat(0x1.555556p-5F));
  p = fma(p, r, splat(0x1.555556p-3F));
  p = fma(p, r, splat(0.5F));
  p = fma(r * r, p, r);  // e^r - 1
  return fma(p, scale, scale);
}

}  // namespace orthant::cpu::ORTHANT_LEVEL
