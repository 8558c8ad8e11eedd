// Softmax cross-entropy over a vocabulary that may be split over ranks; logits are never gathered.
// Each rank reduces its part to three numbers a token; the parts of all ranks give loss and
// gradient.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/ledger.h"
#include "mem/tensor.h"

namespace orthant {

// Columns valid..V-1 are padding: they take no part. A label below 0 masks its token.
struct SoftmaxPart {
  static constexpr std::string_view kName = "softmax_part";
  Tensor part;    // [T,3] f32  out: maximum, sum of exp(logit - maximum), the label's logit (-inf
                  // when not here); -inf, 0, -inf when no column exists
  Tensor logits;  // [T,V]      this rank's columns
  Tensor labels;  // [T] i32    global
  std::int64_t first_column;  // global index of column 0
  std::int64_t valid;         // columns that exist, 0..V
  auto writes() const { return std::array{part}; }
  auto reads() const { return std::array{logits, labels}; }
};

// loss = log-sum-exp - label's logit, 0 where masked;  loss_sum += their sum (a double of
// StepState)
struct CrossEntropyFwd {
  static constexpr std::string_view kName = "cross_entropy_fwd";
  Tensor loss;  // [T] f32    out
  Tensor lse;   // [T] f32    out, kept for backward: log of the sum of exponentials over all parts
  Tensor step_state;  // StepState  in, out: loss_sum
  Tensor parts;       // [N,T,3] f32  the parts of N ranks, added in rank order
  Tensor labels;      // [T] i32
  auto writes() const { return std::array{loss, lse, step_state}; }
  auto reads() const { return std::array{parts, labels}; }
};

// dlogits = (exp(logits - lse) - [column is the label]) * inv_tokens * loss_scale; 0 where masked
// or padding
struct CrossEntropyBwd {
  static constexpr std::string_view kName = "cross_entropy_bwd";
  Tensor dlogits;     // [T,V]      out; may be logits' memory
  Tensor logits;      // [T,V]
  Tensor lse;         // [T] f32
  Tensor labels;      // [T] i32
  Tensor step_state;  // StepState  inv_tokens, loss_scale
  std::int64_t first_column;
  std::int64_t valid;
  auto writes() const { return std::array{dlogits}; }
  auto reads() const { return std::array{logits, lse, labels, step_state}; }
};

void check(const SoftmaxPart& a);
void check(const CrossEntropyFwd& a);
void check(const CrossEntropyBwd& a);
Cost cost(const SoftmaxPart& a);
Cost cost(const CrossEntropyFwd& a);
Cost cost(const CrossEntropyBwd& a);
std::int64_t workspace_bytes(const SoftmaxPart& a);
std::int64_t workspace_bytes(const CrossEntropyFwd& a);
std::int64_t workspace_bytes(const CrossEntropyBwd& a);

}  // namespace orthant
