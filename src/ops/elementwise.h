// Element by element: sums, casts, fills, dropout, and a count of what is not finite.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/ledger.h"
#include "mem/tensor.h"

namespace orthant {

// y = a + b
struct Add {
  static constexpr std::string_view kName = "add";
  Tensor y;  // [N...]  out; may be a's or b's memory
  Tensor a;
  Tensor b;
  auto writes() const { return std::array{y}; }
  auto reads() const { return std::array{a, b}; }
};

// y += x, added in f32
struct Accumulate {
  static constexpr std::string_view kName = "accumulate";
  Tensor y;  // [N...] f32, or bf16  in, out: added to
  Tensor x;  // [N...]               any float type
  auto writes() const { return std::array{y}; }
  auto reads() const { return std::array{x}; }
};

// y = x, converted (float types), or copied bit for bit (equal types, any)
struct Copy {
  static constexpr std::string_view kName = "copy";
  Tensor y;  // [N...]  out
  Tensor x;
  auto writes() const { return std::array{y}; }
  auto reads() const { return std::array{x}; }
};

// y = 0
struct Zero {
  static constexpr std::string_view kName = "zero";
  Tensor y;  // out
  auto writes() const { return std::array{y}; }
  auto reads() const { return std::array<Tensor, 0>{}; }
};

// y = keep(element) ? x / (1 - p) : 0. The mask is recomputed, never stored: the same op is its
// backward. C is the whole width of the model.
struct Dropout {
  static constexpr std::string_view kName = "dropout";
  Tensor y;                // [T,C]      out; may be x's memory
  Tensor x;                // [T,C]      rows first_row .. first_row+T-1 of the micro-batch's B*S
  Tensor sample_ids;       // [B] i64
  Tensor step_state;       // StepState  seed, step
  std::int64_t S;          // tokens in a sequence
  std::int64_t first_row;  // 0 unless the rows are split over ranks
  double p;
  std::uint64_t site;  // which dropout of the model, see dropout.h
  auto writes() const { return std::array{y}; }
  auto reads() const { return std::array{x, sample_ids, step_state}; }
};

// count += elements that are infinite or not a number
struct CountNonFinite {
  static constexpr std::string_view kName = "count_non_finite";
  Tensor count;  // [1] i64  in, out: added to
  Tensor x;      // any float type
  auto writes() const { return std::array{count}; }
  auto reads() const { return std::array{x}; }
};

void check(const Add& a);
void check(const Accumulate& a);
void check(const Copy& a);
void check(const Zero& a);
void check(const Dropout& a);
void check(const CountNonFinite& a);
Cost cost(const Add& a);
Cost cost(const Accumulate& a);
Cost cost(const Copy& a);
Cost cost(const Zero& a);
Cost cost(const Dropout& a);
Cost cost(const CountNonFinite& a);
std::int64_t workspace_bytes(const Add& a);
std::int64_t workspace_bytes(const Accumulate& a);
std::int64_t workspace_bytes(const Copy& a);
std::int64_t workspace_bytes(const Zero& a);
std::int64_t workspace_bytes(const Dropout& a);
std::int64_t workspace_bytes(const CountNonFinite& a);

}  // namespace orthant
