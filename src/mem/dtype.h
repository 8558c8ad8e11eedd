// Element types. bf16 is a float's upper half, f16 IEEE's half precision; conversions round to
// nearest even.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace orthant {

enum class DType : std::uint8_t { kF32, kBF16, kF16, kF64, kI16, kI32, kI64, kU8 };

std::int64_t size_of(DType type);      // bytes of one element
std::string_view name_of(DType type);  // "f32", "bf16", ...

struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const bool is_nan = (word & 0x7fffffffu) > 0x7f800000u;
    bits = is_nan ? static_cast<std::uint16_t>((word >> 16) | 0x40u)
                  : static_cast<std::uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
  }
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

// As F16C's instructions convert, infinities and NaN included.
struct Half {
  std::uint16_t bits = 0;

  Half() = default;
  explicit Half(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = word & 0x7fffffffu;
    std::uint32_t half = 0x7c00u;   // infinity, from 65520 on
    if (magnitude > 0x7f800000u) {  // NaN
      half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
    } else if (magnitude < 0x38800000u) {  // below 2^-14: counts of 2^-24, which 0.5 rounds to
      const float sum = std::bit_cast<float>(magnitude) + 0.5f;
      half = std::bit_cast<std::uint32_t>(sum) - 0x3f000000u;
    } else if (magnitude < 0x477ff000u) {
      half = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    }
    bits = static_cast<std::uint16_t>(((word >> 16) & 0x8000u) | half);
  }
  explicit operator float() const {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
    const std::uint32_t exponent = (bits >> 10) & 0x1fu;
    const std::uint32_t mantissa = bits & 0x3ffu;
    if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24
      const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
      return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
    }
    if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  }
};

}  // namespace orthant
