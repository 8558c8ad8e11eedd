// LayerNorm and RMSNorm over the last dimension, each fused with the residual addition before it.
// Statistics are f32 (ref: double).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/ledger.h"
#include "mem/tensor.h"

namespace orthant {

// Rows whose terms of dw and db are added in a row before they meet those of other blocks.
inline constexpr std::int64_t kNormBwdRows = 64;

enum class NormKind : std::uint8_t { kLayerNorm, kRmsNorm };

// sum = x + addend, rounded to its type;  y = (sum - mean) * rstd * w + b   (RMSNorm: y = sum *
// rstd * w)
struct NormFwd {
  static constexpr std::string_view kName = "norm_fwd";
  Tensor y;       // [T,C]      out
  Tensor sum;     // [T,C]      out; absent when addend is: then x is what is normalised. May be x's
                  // memory.
  Tensor mean;    // [T] f32    out, kept for backward; absent for RMSNorm
  Tensor rstd;    // [T] f32    out, kept for backward
  Tensor x;       // [T,C]
  Tensor addend;  // [T,C]      may be absent
  Tensor w;       // [C]        the type of x
  Tensor b;       // [C]        absent for RMSNorm
  NormKind kind;
  double eps;
  auto writes() const { return std::array{y, sum, mean, rstd}; }
  auto reads() const { return std::array{x, addend, w, b}; }
};

// dx = gradient of what was normalised + d_residual;  dw, db: the parameters' gradients of this
// call alone
struct NormBwd {
  static constexpr std::string_view kName = "norm_bwd";
  Tensor dx;  // [T,C]      out; may be x's or dy's memory
  Tensor dw;  // [C] f32    out
  Tensor db;  // [C] f32    out; absent for RMSNorm
  Tensor dy;  // [T,C]
  Tensor x;  // [T,C]      what was normalised: the forward's sum, or its x when there was no addend
  Tensor w;  // [C]
  Tensor mean;        // [T] f32    absent for RMSNorm
  Tensor rstd;        // [T] f32
  Tensor d_residual;  // [T,C]      may be absent; may be dx's memory
  NormKind kind;
  auto writes() const { return std::array{dx, dw, db}; }
  auto reads() const { return std::array{dy, x, w, mean, rstd, d_residual}; }
};

void check(const NormFwd& a);
void check(const NormBwd& a);
Cost cost(const NormFwd& a);
Cost cost(const NormBwd& a);
std::int64_t workspace_bytes(const NormFwd& a);
// Column sums of each block of kNormBwdRows rows, for dw and db: ceil(T/64) * C * 2 floats.
std::int64_t workspace_bytes(const NormBwd& a);

}  // namespace orthant
