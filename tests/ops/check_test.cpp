// check(): wrong shapes, types, aliasing and absences are refused with a message that says which.
// run() refuses memory of started calls, and names of backends that do not exist.
#include "base/check.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "ops/processor.h"
#include "tests/ops/attention_cases.h"

namespace orthant {
namespace {

constexpr DType kF32 = DType::kF32;
constexpr DType kBF16 = DType::kBF16;

template <OpArgs A>
std::string refusal(OpBed& bed, const A& args) {
  try {
    bed.run(args);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

NormFwd good_norm(OpBed& bed) {
  return {.y = bed.out({8, 6}, kF32),
          .sum = bed.out({8, 6}, kF32),
          .mean = bed.out({8}, kF32),
          .rstd = bed.out({8}, kF32),
          .x = bed.normal("x", {8, 6}, kF32),
          .addend = bed.normal("addend", {8, 6}, kF32),
          .w = bed.normal("w", {6}, kF32),
          .b = bed.normal("b", {6}, kF32),
          .kind = NormKind::kLayerNorm,
          .eps = 1e-5};
}

TEST(Check, AShapeIsNamedWithWhatItMustBe) {
  OpBed bed("ref");
  NormFwd a = good_norm(bed);
  EXPECT_EQ(refusal(bed, a), "accepted");
  a.w = bed.out({7}, kF32);
  EXPECT_EQ(refusal(bed, a), "norm_fwd: w is [7], x is [8,6]; w must be [6]");
  a = good_norm(bed);
  a.rstd = bed.out({8, 1}, kF32);
  EXPECT_EQ(refusal(bed, a), "norm_fwd: rstd is [8,1], x is [8,6]; rstd must be [8]");
  a = good_norm(bed);
  a.x = bed.out({8, 6, 1}, kF32);
  EXPECT_EQ(refusal(bed, a), "norm_fwd: x is [8,6,1]; it must have 2 dimensions");
}

TEST(Check, ATypeIsNamedWithWhatItMustBe) {
  OpBed bed("ref");
  NormFwd a = good_norm(bed);
  a.w = bed.out({6}, kBF16);
  EXPECT_EQ(refusal(bed, a), "norm_fwd: w is bf16, x is f32; w must be f32");
  a = good_norm(bed);
  a.x = bed.out({8, 6}, DType::kI32);
  EXPECT_EQ(refusal(bed, a), "norm_fwd: x is i32; it must be f32, bf16, f16 or f64");
  const LinearBwdWeight linear{.dw = bed.out({3, 4}, kBF16),
                               .db = {},
                               .dy = bed.out({5, 3}, kBF16),
                               .x = bed.out({5, 4}, kBF16)};
  EXPECT_EQ(refusal(bed, linear), "linear_bwd_weight: dw is bf16, x is bf16; dw must be f32");
  const CountNonFinite count{.count = bed.out({1}, DType::kI32), .x = bed.out({3}, kF32)};
  EXPECT_EQ(refusal(bed, count), "count_non_finite: count is i32, x is f32; count must be i64");
}

TEST(Check, OnlyWhatMayBeAbsentIs) {
  OpBed bed("ref");
  NormFwd a = good_norm(bed);
  a.w = {};
  EXPECT_EQ(refusal(bed, a), "norm_fwd: w is absent, x is [8,6]; w must be [6] f32");
  a = good_norm(bed);
  a.addend = {};
  EXPECT_EQ(refusal(bed, a), "norm_fwd: sum is given, but there is no addend; leave it absent");
  a.sum = {};
  EXPECT_EQ(refusal(bed, a), "accepted");
  a.kind = NormKind::kRmsNorm;
  EXPECT_EQ(refusal(bed, a), "norm_fwd: mean is given, but RMSNorm has none; leave it absent");
  a.mean = {};
  EXPECT_EQ(refusal(bed, a), "norm_fwd: b is given, but RMSNorm has none; leave it absent");
  a.b = {};
  EXPECT_EQ(refusal(bed, a), "accepted");
  a.x = {};
  EXPECT_EQ(refusal(bed, a), "norm_fwd: x is absent; it must be given");
}

TEST(Check, OutputsOverlapOnlyWhatTheyMay) {
  OpBed bed("ref");
  NormFwd a = good_norm(bed);
  a.sum = a.x;
  EXPECT_EQ(refusal(bed, a), "accepted");
  a = good_norm(bed);
  a.y = a.x;
  EXPECT_EQ(refusal(bed, a), "norm_fwd: y overlaps x in memory; they must be apart");
  a = good_norm(bed);
  a.sum = a.y;
  EXPECT_EQ(refusal(bed, a), "norm_fwd: y overlaps sum in memory; they must be apart");
  const Tensor both = bed.normal("both", {9, 6}, kF32);
  const GeluBwd shifted{
      .dx = both.rows(1, 8), .dy = bed.normal("dy", {8, 6}, kF32), .x = both.rows(0, 8)};
  EXPECT_EQ(refusal(bed, shifted),
            "gelu_bwd: dx overlaps a part of x; they must be the same memory or apart");
}

TEST(Check, AttentionNamesItsNumbers) {
  OpBed bed("ref");
  const AttentionSize n = {.B = 2, .S = 4, .H = 4, .G = 2, .D = 2};
  AttentionFwd a = attention_fwd(bed, n, kF32);
  a.shape.S = 5;
  EXPECT_EQ(refusal(bed, a), "attention_fwd: qkv is [8,16]; it must be [B*S,(H+2G)*D] = [10,16]");
  a = attention_fwd(bed, n, kF32);
  a.shape.G = 3;
  EXPECT_EQ(refusal(bed, a), "attention_fwd: H=4 is no multiple of G=3");
  a = attention_fwd(bed, n, kF32);
  a.shape.dropout = 0.1;
  EXPECT_EQ(refusal(bed, a),
            "attention_fwd: sample_ids is absent, qkv is [8,16]; sample_ids must be [2] i64");
  a = attention_fwd(bed, n, kF32);
  a.shape.num_all_heads = 4;
  EXPECT_EQ(refusal(bed, a), "attention_fwd: heads 1..4 are not among num_all_heads=4");
  a = attention_fwd(bed, n, kF32);
  a.positions = bed.whole("positions", {4}, DType::kI32, 0, 0);
  EXPECT_EQ(refusal(bed, a),
            "attention_fwd: positions is [4], qkv is [8,16]; positions must be [8]");
}

TEST(Check, NumbersLieInTheirRange) {
  OpBed bed("ref");
  const Dropout rows{.y = bed.out({7, 2}, kF32),
                     .x = bed.out({7, 2}, kF32),
                     .sample_ids = bed.whole("samples", {2}, DType::kI64, 0, 9),
                     .step_state = bed.step_state({}),
                     .S = 4,
                     .first_row = 2,
                     .p = 0.1,
                     .site = 0};
  EXPECT_EQ(refusal(bed, rows),
            "dropout: x is [7,2] from first_row=2, sample_ids is [2], S=4; the rows must lie in "
            "B*S = 8");
  const SoftmaxPart part{.part = bed.out({3, 3}, kF32),
                         .logits = bed.out({3, 8}, kF32),
                         .labels = bed.whole("labels", {3}, DType::kI32, 0, 7),
                         .first_column = 0,
                         .valid = 9};
  EXPECT_EQ(refusal(bed, part),
            "softmax_part: first_column=0, valid=9, logits is [3,8]; valid must lie in 0..8");
}

TEST(Check, F16IsCheckedButNotComputedByRef) {
  OpBed bed("ref");
  const Tensor x = bed.zeros({2, 2}, DType::kF16);
  EXPECT_EQ(refusal(bed, GeluFwd{.y = bed.zeros({2, 2}, DType::kF16), .x = x}),
            "ref ops: a tensor is f16; the ref backend computes f32, bf16 and f64");
  OpBed meta("meta");
  const GeluFwd on_meta{.y = meta.zeros({2, 2}, DType::kF16), .x = meta.zeros({2, 2}, DType::kF16)};
  EXPECT_EQ(refusal(meta, on_meta), "accepted");
}

TEST(Ops, MemoryOfAStartedCallIsNotTouched) {
  for (const char* kind : {"ref", "meta"}) {
    OpBed bed(kind);
    const Add a{.y = bed.out({4}, kF32), .a = bed.out({4}, kF32), .b = bed.out({4}, kF32)};
    bed.in_flight().own_read(Token{1}, a.a, "send");
    EXPECT_EQ(refusal(bed, a), "accepted");
    bed.in_flight().own_written(Token{2}, a.b, "recv");
    EXPECT_EQ(refusal(bed, a),
              "add touches memory that a started recv still owns; wait for that call first");
    bed.in_flight().release(Token{2});
    bed.in_flight().own_read(Token{3}, a.y, "send");
    EXPECT_EQ(refusal(bed, a),
              "add touches memory that a started send still owns; wait for that call first");
    bed.in_flight().release(Token{3});
    EXPECT_EQ(refusal(bed, a), "accepted");
    bed.in_flight().release(Token{1});
  }
}

TEST(Ops, AnUnknownBackendIsRefusedWithTheKnownOnes) {
  try {
    const OpBed bed("cuba");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kUser);
    EXPECT_EQ(error.what(),
              fmt::format("ops 'cuba' are not built in; known are {} and meta", join(ops_kinds())));
  }
}

TEST(Ops, ARunLeavesNoWorkspaceBehind) {
  OpBed bed("ref");
  const AttentionSize n = {.B = 1, .S = 4, .H = 2, .G = 2, .D = 2};
  const AttentionFwd fwd = attention_fwd(bed, n, kF32);
  bed.run(fwd);
  bed.run(attention_bwd(bed, fwd));
  EXPECT_EQ(bed.work().top(), 0);
  EXPECT_EQ(bed.work().peak(), 256);  // 4 * 12 + 2 * 4 floats, rounded up
}

}  // namespace
}  // namespace orthant
