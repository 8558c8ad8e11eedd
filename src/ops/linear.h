// Matrix products of linear layers. Weights are stored [O,I], as a Linear of PyTorch.
#pragma once

#include <array>
#include <string_view>

#include "base/ledger.h"
#include "mem/tensor.h"

namespace orthant {

// y = x w^T + b, and GELU of it where that is asked for: a GPU makes both at once, GELU of sums
// that are not rounded yet.
struct LinearFwd {
  static constexpr std::string_view kName = "linear_fwd";
  Tensor y;          // [T,O]  out
  Tensor x;          // [T,I]
  Tensor w;          // [O,I]  the type of x
  Tensor b;          // [O]    the type of x; may be absent
  Tensor gelu = {};  // [T,O]  out: of y, as GeluFwd has it; may be absent
  auto writes() const { return std::array{y, gelu}; }
  auto reads() const { return std::array{x, w, b}; }
};

// dx = dy w, or where x was GELU of something the gradient of that: dx = (dy w) GELU'(gelu_x)
struct LinearBwdInput {
  static constexpr std::string_view kName = "linear_bwd_input";
  Tensor dx;           // [T,I]  out
  Tensor dy;           // [T,O]
  Tensor w;            // [O,I]
  Tensor gelu_x = {};  // [T,I]  may be absent
  auto writes() const { return std::array{dx}; }
  auto reads() const { return std::array{dy, w, gelu_x}; }
};

// dw += dy^T x,  db += column sums of dy
struct LinearBwdWeight {
  static constexpr std::string_view kName = "linear_bwd_weight";
  Tensor dw;  // [O,I] f32  in, out: added to
  Tensor db;  // [O] f32    in, out: added to; may be absent
  Tensor dy;  // [T,O]
  Tensor x;   // [T,I]
  auto writes() const { return std::array{dw, db}; }
  auto reads() const { return std::array{dy, x}; }
};

void check(const LinearFwd& a);
void check(const LinearBwdInput& a);
void check(const LinearBwdWeight& a);
Cost cost(const LinearFwd& a);
Cost cost(const LinearBwdInput& a);
Cost cost(const LinearBwdWeight& a);
// 0: a backend that converts operands does so block by block, in memory of its own.
std::int64_t workspace_bytes(const LinearFwd& a);
std::int64_t workspace_bytes(const LinearBwdInput& a);
std::int64_t workspace_bytes(const LinearBwdWeight& a);

}  // namespace orthant
