// GELU in its tanh form (GPT-2's gelu_new, BLOOM's) and SwiGLU.
#pragma once

#include <array>
#include <string_view>

#include "base/ledger.h"
#include "mem/tensor.h"

namespace orthant {

// y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
struct GeluFwd {
  static constexpr std::string_view kName = "gelu_fwd";
  Tensor y;  // [T,F]  out
  Tensor x;  // [T,F]
  auto writes() const { return std::array{y}; }
  auto reads() const { return std::array{x}; }
};

struct GeluBwd {
  static constexpr std::string_view kName = "gelu_bwd";
  Tensor dx;  // [T,F]  out; may be x's or dy's memory
  Tensor dy;  // [T,F]
  Tensor x;   // [T,F]
  auto writes() const { return std::array{dx}; }
  auto reads() const { return std::array{dy, x}; }
};

// y = silu(gate) * up, where a row of gate_up is F gates, then F ups
struct SwigluFwd {
  static constexpr std::string_view kName = "swiglu_fwd";
  Tensor y;        // [T,F]   out
  Tensor gate_up;  // [T,2F]
  auto writes() const { return std::array{y}; }
  auto reads() const { return std::array{gate_up}; }
};

struct SwigluBwd {
  static constexpr std::string_view kName = "swiglu_bwd";
  Tensor d_gate_up;  // [T,2F]  out; may be gate_up's memory
  Tensor dy;         // [T,F]
  Tensor gate_up;    // [T,2F]
  auto writes() const { return std::array{d_gate_up}; }
  auto reads() const { return std::array{dy, gate_up}; }
};

void check(const GeluFwd& a);
void check(const GeluBwd& a);
void check(const SwigluFwd& a);
void check(const SwigluBwd& a);
Cost cost(const GeluFwd& a);
Cost cost(const GeluBwd& a);
Cost cost(const SwigluFwd& a);
Cost cost(const SwigluBwd& a);
std::int64_t workspace_bytes(const GeluFwd& a);
std::int64_t workspace_bytes(const GeluBwd& a);
std::int64_t workspace_bytes(const SwigluFwd& a);
std::int64_t workspace_bytes(const SwigluBwd& a);

}  // namespace orthant
