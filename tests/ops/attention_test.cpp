// Attention: gradients, causality, documents that are as if alone, agreement of the cached form,
// and dropout that does not depend on the layout.
#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "ops/processor.h"
#include "tests/ops/attention_cases.h"
#include "tests/support/grad_check.h"

namespace orthant {
namespace {

constexpr DType kF64 = DType::kF64;

void expect_gradients(const AttentionSize& n) {
  OpBed bed("ref");
  const AttentionFwd fwd = attention_fwd(bed, n, kF64);
  const AttentionBwd bwd = attention_bwd(bed, fwd);
  const auto objective = [&] {
    bed.run(fwd);
    return inner(fwd.o, bwd.do_);
  };
  objective();
  bed.run(bwd);
  expect_gradient(objective, fwd.qkv, bwd.dqkv, "dqkv");
}

TEST(Attention, BackwardMatchesFiniteDifferences) {
  expect_gradients({.B = 2, .S = 5, .H = 2, .G = 2, .D = 3});
}

TEST(Attention, BackwardOfGroupedHeadsMatchesFiniteDifferences) {
  expect_gradients({.B = 1, .S = 5, .H = 4, .G = 2, .D = 3});
  expect_gradients({.B = 1, .S = 4, .H = 3, .G = 1, .D = 2});
}

TEST(Attention, BackwardWithSlopesAndDropoutMatchesFiniteDifferences) {
  expect_gradients({.B = 2, .S = 6, .H = 3, .G = 3, .D = 2, .has_slopes = true, .dropout = 0.4});
}

TEST(Attention, BackwardWithDocumentsMatchesFiniteDifferences) {
  expect_gradients({.B = 2, .S = 7, .H = 2, .G = 1, .D = 3, .documents = {3, 1, 2}});
  expect_gradients({.B = 1,
                    .S = 6,
                    .H = 3,
                    .G = 3,
                    .D = 2,
                    .has_slopes = true,
                    .dropout = 0.4,
                    .documents = {2, 3}});
}

// Rows first.. of a sequence's qkv as a sequence of their own.
AttentionFwd alone(OpBed& bed, const AttentionFwd& whole, std::int64_t first, std::int64_t count) {
  AttentionFwd part = whole;
  part.shape.B = 1;
  part.shape.S = count;
  part.positions = {};
  part.o = bed.out({count, whole.o.shape[1]}, whole.o.dtype);
  part.lse = bed.out({1, whole.shape.H, count}, whole.lse.dtype);
  part.qkv = whole.qkv.rows(first, count);
  return part;
}

TEST(Attention, DocumentsAreAsIfEachWereAlone) {
  for (const bool has_slopes : {false, true}) {
    AttentionSize n = {.B = 1, .S = 12, .H = 4, .G = 2, .D = 6, .has_slopes = has_slopes};
    n.documents = {4, 1, 7};
    OpBed bed("ref");
    const AttentionFwd packed = attention_fwd(bed, n, kF64);
    const AttentionBwd packed_bwd = attention_bwd(bed, packed);
    bed.run(packed);
    bed.run(packed_bwd);
    std::int64_t first = 0;
    for (const std::int64_t count : n.documents) {
      const AttentionFwd fwd = alone(bed, packed, first, count);
      AttentionBwd bwd = attention_bwd(bed, fwd);
      bwd.do_ = packed_bwd.do_.rows(first, count);
      bed.run(fwd);
      bed.run(bwd);
      expect_close(packed.o.rows(first, count), fwd.o, 1e-14, "o");
      expect_close(packed_bwd.dqkv.rows(first, count), bwd.dqkv, 1e-14, "dqkv");
      first += count;
    }
  }
}

// What a document computes does not depend on a bit of the others.
TEST(Attention, NoBitOfADocumentDependsOnAnother) {
  for (const CpuLevel level : processor_features().levels) {
    for (const DType type : {DType::kF32, DType::kBF16}) {
      AttentionSize n = {.B = 1, .S = 500, .H = 2, .G = 1, .D = 32};
      n.documents = {90, 110, 300};
      OpBed bed(ops_kind(level), 2);
      const AttentionFwd fwd = attention_fwd(bed, n, type);
      const AttentionBwd bwd = attention_bwd(bed, fwd);
      bed.run(fwd);
      bed.run(bwd);
      const std::vector<double> o = values_of(fwd.o.rows(90, 110));
      const std::vector<double> dqkv = values_of(bwd.dqkv.rows(90, 110));
      for (const auto& [first, count] : {std::pair{0, 90}, {200, 300}}) {
        bed.set(fwd.qkv.rows(first, count),
                std::vector<double>(static_cast<std::size_t>(count) * 4 * 32, 3.5));
      }
      bed.run(fwd);
      bed.run(bwd);
      EXPECT_EQ(values_of(fwd.o.rows(90, 110)), o);
      EXPECT_EQ(values_of(bwd.dqkv.rows(90, 110)), dqkv);
    }
  }
}

TEST(Attention, OneDocumentHasTheBitsOfNone) {
  for (const CpuLevel level : processor_features().levels) {
    for (const DType type : {DType::kF32, DType::kBF16}) {
      for (const std::int64_t S : {1, 33, 96, 300, 600}) {
        AttentionSize n = {.B = 2, .S = S, .H = 4, .G = 2, .D = 24, .has_slopes = true};
        OpBed plain(ops_kind(level), 2);
        OpBed single(ops_kind(level), 2);
        const AttentionFwd plain_fwd = attention_fwd(plain, n, type);
        const AttentionBwd plain_bwd = attention_bwd(plain, plain_fwd);
        n.documents = {1000};
        const AttentionFwd fwd = attention_fwd(single, n, type);
        const AttentionBwd bwd = attention_bwd(single, fwd);
        plain.run(plain_fwd);
        plain.run(plain_bwd);
        single.run(fwd);
        single.run(bwd);
        EXPECT_EQ(values_of(fwd.o), values_of(plain_fwd.o)) << S;
        EXPECT_EQ(values_of(fwd.lse), values_of(plain_fwd.lse)) << S;
        EXPECT_EQ(values_of(bwd.dqkv), values_of(plain_bwd.dqkv)) << S;
      }
    }
  }
}

TEST(Attention, TheFirstTokenSeesItselfAlone) {
  OpBed bed("ref");
  const AttentionFwd a = attention_fwd(bed, {.B = 1, .S = 3, .H = 2, .G = 1, .D = 4}, kF64);
  bed.run(a);
  const Tensor v = a.qkv.flat(3 * 4, 4);
  expect_close(values_of(a.o.as({24}).flat(0, 4)), values_of(v), {4}, 1e-15, "head 0");
  expect_close(values_of(a.o.as({24}).flat(4, 4)), values_of(v), {4}, 1e-15, "head 1");
}

TEST(Attention, LaterTokensChangeNoEarlierOutput) {
  OpBed bed("ref");
  const AttentionFwd a = attention_fwd(bed, {.B = 1, .S = 6, .H = 2, .G = 2, .D = 4}, kF64);
  bed.run(a);
  const std::vector<double> before = values_of(a.o.rows(0, 5));
  a.qkv.rows(5, 1).ptr<double>()[0] += 1;
  bed.run(a);
  expect_close(values_of(a.o.rows(0, 5)), before, {5, 8}, 0, "o");
}

TEST(Attention, SlopesOfHeadsThatAreNoPowerOfTwoFollowBloom) {
  // build_alibi_tensor of Hugging Face's BLOOM for 6 heads.
  const std::vector<double> expected = {0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125};
  expect_close(alibi_slopes(6), expected, {6}, 1e-15, "slopes");
}

TEST(Attention, CachedEqualsForwardTokenByToken) {
  const AttentionSize n = {.B = 2, .S = 7, .H = 4, .G = 2, .D = 6, .has_slopes = true};
  OpBed bed("ref");
  const AttentionFwd whole = attention_fwd(bed, n, kF64);
  bed.run(whole);
  const std::int64_t width = (n.H + 2 * n.G) * n.D;
  const Tensor k_cache = bed.zeros({n.B, 9, n.G, n.D}, kF64);
  const Tensor v_cache = bed.zeros({n.B, 9, n.G, n.D}, kF64);
  // A prompt of four tokens, then one by one.
  std::int64_t start = 0;
  for (const std::int64_t num_new : {4, 1, 1, 1}) {
    const Tensor qkv = bed.zeros({n.B * num_new, width}, kF64);
    const Tensor o = bed.out({n.B * num_new, n.H * n.D}, kF64);
    for (std::int64_t b = 0; b < n.B; ++b) {
      const Tensor from = whole.qkv.rows(b * n.S + start, num_new);
      std::memcpy(qkv.rows(b * num_new, num_new).data, from.data,
                  static_cast<std::size_t>(from.bytes()));
    }
    AttentionShape shape = whole.shape;
    shape.S = num_new;
    bed.run(AttentionCached{.o = o,
                            .k_cache = k_cache,
                            .v_cache = v_cache,
                            .qkv = qkv,
                            .slopes = whole.slopes,
                            .shape = shape,
                            .start = start});
    for (std::int64_t b = 0; b < n.B; ++b) {
      expect_close(o.rows(b * num_new, num_new), whole.o.rows(b * n.S + start, num_new), 1e-13,
                   "o");
    }
    start += num_new;
  }
}

TEST(Attention, DropoutDoesNotDependOnWhichHeadsAndSamplesAreHere) {
  // Head 1 of sample 1 of the whole, computed alone.
  const AttentionSize n = {.B = 2, .S = 9, .H = 3, .G = 3, .D = 4, .dropout = 0.5};
  OpBed bed("ref");
  const AttentionFwd whole = attention_fwd(bed, n, kF64);
  AttentionFwd part =
      attention_fwd(bed, {.B = 1, .S = 9, .H = 1, .G = 1, .D = 4, .dropout = 0.5}, kF64);
  part.sample_ids = whole.sample_ids.rows(1, 1);
  part.shape.first_head = whole.shape.first_head + 1;
  part.shape.num_all_heads = whole.shape.num_all_heads;
  for (std::int64_t s = 0; s < n.S; ++s) {
    for (std::int64_t i = 0; i < 3; ++i) {  // q, k, v
      const Tensor from = whole.qkv.rows(n.S + s, 1).as({36}).flat((i * 3 + 1) * 4, 4);
      const Tensor to = part.qkv.rows(s, 1).as({12}).flat(i * 4, 4);
      std::memcpy(to.data, from.data, static_cast<std::size_t>(from.bytes()));
    }
  }
  bed.run(whole);
  bed.run(part);
  for (std::int64_t s = 0; s < n.S; ++s) {
    const Tensor expected = whole.o.rows(n.S + s, 1).as({12}).flat(4, 4);
    expect_close(part.o.rows(s, 1).as({4}), expected, 1e-14, "o");
  }
}

TEST(Attention, ForwardCountsTheCausalHalf) {
  OpBed bed("meta");
  bed.run(attention_fwd(bed, {.B = 2, .S = 16, .H = 4, .G = 2, .D = 8}, DType::kF32));
  EXPECT_EQ(bed.ledger().entries()[0].cost.flops, 2 * (2.0 * 2 * 4 * 16 * 16 * 8) / 2);
}

}  // namespace
}  // namespace orthant
