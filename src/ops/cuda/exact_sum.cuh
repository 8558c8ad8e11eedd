// ops/exact_sum.h on the device: limbs are integers, so that threads may add in any order.
#pragma once

#include <cstdint>

#include "ops/exact_sum.h"

namespace orthant::cuda {

using Limb = unsigned long long;  // what atomicAdd takes; the sums wrap as those of i64 do

// Terms of one thread: those in the same three limbs are added in registers.
class ExactTerms {
 public:
  // `limbs` are shared by threads.
  __device__ explicit ExactTerms(Limb* limbs) : limbs_(limbs) {}

  __device__ void add(double term) {
    if (!(term < kNormTermLimit)) {
      atomicAdd(limbs_ + kNormDigits, Limb{1});
      return;
    }
    if (term < kNormUnit) return;  // zero
    const auto word = static_cast<std::uint64_t>(__double_as_longlong(term));
    const auto biased = static_cast<int>(word >> 52);
    const std::uint64_t mantissa = (word & 0xfffffffffffffull) | 0x10000000000000ull;
    const int place = biased - 1075 - kNormUnitExponent;
    const std::uint64_t digits = place < 0 ? mantissa >> -place : mantissa;
    const int at = place < 0 ? 0 : place / kNormDigitBits;
    const int shift = place < 0 ? 0 : place % kNormDigitBits;
    const std::uint64_t low = (digits & kNormDigitMask) << shift;
    const std::uint64_t high = ((digits >> kNormDigitBits) << shift) + (low >> kNormDigitBits);
    if (at != at_) {
      flush();
      at_ = at;
    }
    parts_[0] += low & kNormDigitMask;
    parts_[1] += high & kNormDigitMask;
    parts_[2] += high >> kNormDigitBits;
  }

  __device__ void flush() {
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      if (parts_[i] != 0) atomicAdd(limbs_ + at_ + i, parts_[i]);
      parts_[i] = 0;
    }
  }

 private:
  Limb* limbs_;
  int at_ = 0;
  Limb parts_[3] = {};
};

__device__ inline void carry_over(std::int64_t* limbs) {
  for (int i = 0; i + 1 < kNormDigits; ++i) {
    limbs[i + 1] += limbs[i] >> kNormDigitBits;
    limbs[i] &= static_cast<std::int64_t>(kNormDigitMask);
  }
}

// The sum, rounded once to the nearest double; infinity when a term was not finite.
__device__ inline double exact_value(const std::int64_t* limbs) {
  if (limbs[kNormDigits] != 0) return INFINITY;
  std::int64_t digits[kNormLimbs];
  for (int i = 0; i < kNormLimbs; ++i) {
    digits[i] = limbs[i];
  }
  carry_over(digits);
  int at = kNormDigits - 1;
  while (at > 0 && digits[at] == 0) {
    --at;
  }
  auto word = static_cast<std::uint64_t>(digits[at]);
  int exponent = at * kNormDigitBits + kNormUnitExponent;
  std::uint64_t rest = 0;
  while (at > 0) {
    const auto digit = static_cast<std::uint64_t>(digits[--at]);
    const int bits = min(__clzll(static_cast<long long>(word)), kNormDigitBits);
    const int left = kNormDigitBits - bits;
    word = (word << bits) | (digit >> left);
    rest |= digit & ((std::uint64_t{1} << left) - 1);
    exponent -= bits;
  }
  return ldexp(static_cast<double>(word | (rest != 0 ? 1u : 0u)), exponent);
}

}  // namespace orthant::cuda
