// The update: exact global gradient norm, clip factor, AdamW over flat shards.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/ledger.h"
#include "mem/tensor.h"

namespace orthant {

// A sum that does not depend on the order or grouping of its terms: a fixed-point number of 32-bit
// digits in i64 limbs (limb k counts units of 2^(32k - 320)), plus a count of terms that were not
// finite or reached 2^160. Limbs of ranks are added as integers. The arithmetic is in exact_sum.h.
inline constexpr int kNormLimbs = 16;  // the last one counts non-finite terms
inline constexpr int kNormBlock =
    64;  // elements whose squares are added in floating point, in order

// sum += squares of g, block by block of kNormBlock elements; a block's sum is a double. Blocks lie
// on a grid of their own, where g may begin inside one. Digits are carried over at the end.
struct SquaredNorm {
  static constexpr std::string_view kName = "squared_norm";
  Tensor sum;     // [kNormLimbs] i64  in, out: added to
  Tensor g;       // [N] f32 or bf16
  int start = 0;  // place of its first element in its block, below kNormBlock
  auto writes() const { return std::array{sum}; }
  auto reads() const { return std::array{g}; }
};

// grad_norm = sqrt(sum) / loss_scale; clip_factor = min(1, max_norm / (grad_norm + 1e-6)) /
// loss_scale (1 / loss_scale when max_norm is 0); skip = norm is not finite; updates += 1 - skip;
// then the loss scale of the next step: step_state.h
struct ClipFactor {
  static constexpr std::string_view kName = "clip_factor";
  Tensor step_state;  // StepState  in, out
  Tensor sum;         // [kNormLimbs] i64
  auto writes() const { return std::array{step_state}; }
  auto reads() const { return std::array{sum}; }
};

// Where the elements of a rank's part lie in the flattened whole tensor: in rows, `stride` apart.
struct ElementPlaces {
  std::int64_t first = 0;  // which element of the part comes first
  std::int64_t row = 1;    // elements of the part that lie side by side
  std::int64_t stride = 1;
  std::int64_t offset = 0;  // of the part's first element

  std::int64_t of(std::int64_t i) const {
    const std::int64_t at = first + i;
    return at / row * stride + at % row + offset;
  }
  // Elements from i on that lie side by side.
  std::int64_t neighbours(std::int64_t i) const { return row - (first + i) % row; }
};

// g = grad * clip_factor;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
// master -= lr (m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + decay * master);  value =
// master, rounded. Decoupled weight decay of Loshchilov and Hutter (ICLR 2019), in the order of
// torch.optim.AdamW: decay first. Moments in bf16 are rounded up or down by chance, in proportion
// to what is left: so small changes of v are not lost (as in llmq). The chance is a function of
// seed, step, stream and the element's place in the whole tensor. A master in 16 bits is what its
// value lacks of it (split_master.h).
struct AdamW {
  static constexpr std::string_view kName = "adamw";
  Tensor master;  // [N] f32, or i16: beside a value in bf16    in, out
  Tensor m;       // [N] f32 or bf16  in, out
  Tensor v;       // [N]        in, out; the type of m
  Tensor value;   // [N]        out: master in the compute type; absent when that is f32 (master is
                  // the value); in, out where the master is split
  Tensor grad;    // [N] f32 or bf16
  Tensor step_state;  // StepState  lr, clip_factor, skip, updates; seed, step
  double beta1;
  double beta2;
  double eps;
  double weight_decay;        // 0 for parameters that do not decay
  ElementPlaces places = {};  // bf16 moments: of their elements
  std::uint64_t stream = 0;   // bf16 moments: of this tensor, stream_of(name)
  bool is_split() const { return master.dtype == DType::kI16; }
  auto writes() const { return std::array{master, m, v, value}; }
  auto reads() const { return std::array{grad, step_state}; }
};

void check(const SquaredNorm& a);
void check(const ClipFactor& a);
void check(const AdamW& a);
Cost cost(const SquaredNorm& a);
Cost cost(const ClipFactor& a);
Cost cost(const AdamW& a);
std::int64_t workspace_bytes(const SquaredNorm& a);
std::int64_t workspace_bytes(const ClipFactor& a);
std::int64_t workspace_bytes(const AdamW& a);

}  // namespace orthant
