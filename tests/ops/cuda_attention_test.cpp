// Fused attention on a GPU at sizes of many blocks: against our own kernel in f32, and with the
// gradients in place of what they are gradients of.
#include <cstring>

#include <gtest/gtest.h>

#include "tests/ops/attention_cases.h"
#include "tests/support/close.h"

namespace orthant {
namespace {

const AttentionSize kLargeSizes[] = {{2, 512, 12, 12, 64},
                                     {1, 1024, 8, 2, 128},
                                     {2, 333, 6, 6, 80},
                                     {1, 700, 4, 4, 64, true},
                                     {1, 257, 2, 1, 256},
                                     {3, 384, 4, 1, 8},
                                     {2, 512, 6, 2, 64, false, 0, {128, 1, 300}},
                                     {1, 1024, 4, 4, 128, false, 0, {700, 5}},
                                     {2, 333, 3, 3, 80, true, 0, {97, 160}}};

const Target kTargets[] = {Target::kCuda, Target::kCudaDeterministic};

class CudaAttention : public testing::TestWithParam<AttentionSize> {
 protected:
  void SetUp() override {
    if (gpus().empty()) GTEST_SKIP() << "no GPU is here";
  }
};

// What both beds compute from the same bf16 numbers.
AttentionBwd run(OpBed& bed, const AttentionSize& n, DType type) {
  AttentionFwd fwd = attention_fwd(bed, n, type);
  const Tensor rounded = bed.normal("qkv", fwd.qkv.shape, DType::kBF16);
  bed.run(Copy{.y = fwd.qkv, .x = rounded});
  AttentionBwd bwd = attention_bwd(bed, fwd);
  bed.run(Copy{.y = bwd.do_, .x = bed.normal("do", fwd.o.shape, DType::kBF16)});
  bed.run(fwd);
  bed.run(bwd);
  return bwd;
}

TEST_P(CudaAttention, InBf16IsNearOurOwnInF32) {
  OpBed own("cuda");
  const AttentionBwd expected = run(own, GetParam(), DType::kF32);
  for (const Target target : kTargets) {
    OpBed fused("cuda", 1, target);
    const AttentionBwd actual = run(fused, GetParam(), DType::kBF16);
    const auto compare = [&](const Tensor& a, const Tensor& e, double tol, const char* name) {
      const Tensor here = fused.on_host(a);
      expect_close(values_of(here), values_of(own.on_host(e)), here.shape, tol, name);
    };
    compare(actual.o, expected.o, 1e-2, "o");
    compare(actual.lse, expected.lse, 1e-5, "lse");
    compare(actual.dqkv, expected.dqkv, 2e-2, "dqkv");
  }
}

void expect_the_same_in_place(const AttentionSize& n, Target target) {
  OpBed bed("cuda", 1, target);
  const AttentionFwd fwd = attention_fwd(bed, n, DType::kBF16);
  bed.run(fwd);
  const AttentionBwd apart = attention_bwd(bed, fwd);
  bed.run(apart);
  for (int i = 0; i < 10; ++i) {
    AttentionBwd in_place = apart;
    in_place.qkv = bed.normal("qkv", fwd.qkv.shape, DType::kBF16);
    in_place.dqkv = in_place.qkv;
    bed.run(in_place);
    const std::vector<double> expected = values_of(bed.on_host(apart.dqkv));
    // dq may differ in a last bit from run to run, see cuda_ops.h.
    expect_close(values_of(bed.on_host(in_place.dqkv)), expected, fwd.qkv.shape, 1e-3, "dqkv");
  }
}

TEST_P(CudaAttention, GradientsMayReplaceTheirQueriesKeysAndValues) {
  for (const Target target : kTargets) {
    expect_the_same_in_place(GetParam(), target);
  }
}

TEST_P(CudaAttention, DeterministicGradientsHaveOneBitPattern) {
  OpBed bed("cuda", 1, Target::kCudaDeterministic);
  const AttentionFwd fwd = attention_fwd(bed, GetParam(), DType::kBF16);
  bed.run(fwd);
  const AttentionBwd first = attention_bwd(bed, fwd);
  bed.run(first);
  const Tensor expected = bed.on_host(first.dqkv);
  for (int i = 0; i < 10; ++i) {
    AttentionBwd again = first;
    again.dqkv = bed.out(fwd.qkv.shape, fwd.qkv.dtype);
    bed.run(again);
    const Tensor actual = bed.on_host(again.dqkv);
    ASSERT_EQ(0,
              std::memcmp(actual.data, expected.data, static_cast<std::size_t>(expected.bytes())));
  }
}

INSTANTIATE_TEST_SUITE_P(Large, CudaAttention, testing::ValuesIn(kLargeSizes));

}  // namespace
}  // namespace orthant
