// Rotary position embedding in the half-split form: pairs (x[i], x[i + D/2]).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/ledger.h"
#include "mem/tensor.h"

namespace orthant {

enum class Rotate : std::uint8_t { kForward, kBackward };  // backward: by the negative angle

// Rotates the query and key heads of qkv by position * inv_freq. The angle is an f32 product, as in
// Hugging Face's models; its sine and cosine are computed in double and rounded to f32.
struct Rotary {
  static constexpr std::string_view kName = "rotary";
  Tensor qkv;        // [T,(H+2G)*D]  in, out
  Tensor positions;  // [T] i32
  Tensor inv_freq;   // [D/2] f32
  std::int64_t H;
  std::int64_t G;
  Rotate direction;
  auto writes() const { return std::array{qkv}; }
  auto reads() const { return std::array{positions, inv_freq}; }
};

void check(const Rotary& a);
Cost cost(const Rotary& a);
std::int64_t workspace_bytes(const Rotary& a);

}  // namespace orthant
