// Element types. bf16 is a float's upper half; conversions round to nearest even.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace orthant {

enum class DType : std::uint8_t { kF32, kBF16, kF16, kF64, kI32, kI64, kU8 };

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

}  // namespace orthant
