// LayerNorm and RMSNorm: what their rows look like, the fused addition, and all gradients.
#include <cmath>

#include <gtest/gtest.h>

#include "tests/support/grad_check.h"

namespace orthant {
namespace {

constexpr DType kF64 = DType::kF64;
constexpr std::int64_t T = 4;
constexpr std::int64_t C = 6;

// Forward with an addend, and the backward that belongs to it.
struct Pass {
  NormFwd fwd;
  NormBwd bwd;
};

Pass make_pass(OpBed& bed, NormKind kind) {
  const bool is_layer = kind == NormKind::kLayerNorm;
  Pass pass{.fwd = {.y = bed.out({T, C}, kF64),
                    .sum = bed.out({T, C}, kF64),
                    .mean = is_layer ? bed.out({T}, kF64) : Tensor{},
                    .rstd = bed.out({T}, kF64),
                    .x = bed.normal("x", {T, C}, kF64, 1, 0.5),
                    .addend = bed.normal("addend", {T, C}, kF64),
                    .w = bed.normal("w", {C}, kF64, 0.3, 1),
                    .b = is_layer ? bed.normal("b", {C}, kF64) : Tensor{},
                    .kind = kind,
                    .eps = 1e-5},
            .bwd = {}};
  pass.bwd = {.dx = bed.out({T, C}, kF64),
              .dw = bed.out({C}, kF64),
              .db = is_layer ? bed.out({C}, kF64) : Tensor{},
              .dy = bed.normal("dy", {T, C}, kF64),
              .x = pass.fwd.sum,
              .w = pass.fwd.w,
              .mean = pass.fwd.mean,
              .rstd = pass.fwd.rstd,
              .d_residual = bed.normal("d_residual", {T, C}, kF64),
              .kind = kind};
  return pass;
}

// The sum goes on as the residual, so its gradient has two parts.
void expect_gradients(NormKind kind) {
  OpBed bed("ref");
  const Pass pass = make_pass(bed, kind);
  const auto objective = [&] {
    bed.run(pass.fwd);
    return inner(pass.fwd.y, pass.bwd.dy) + inner(pass.fwd.sum, pass.bwd.d_residual);
  };
  objective();
  bed.run(pass.bwd);
  expect_gradient(objective, pass.fwd.x, pass.bwd.dx, "dx");
  expect_gradient(objective, pass.fwd.addend, pass.bwd.dx, "d_addend");
  expect_gradient(objective, pass.fwd.w, pass.bwd.dw, "dw");
  if (pass.bwd.db.present()) expect_gradient(objective, pass.fwd.b, pass.bwd.db, "db");
}

TEST(Norm, LayerNormBackwardMatchesFiniteDifferences) {
  expect_gradients(NormKind::kLayerNorm);
}

TEST(Norm, RmsNormBackwardMatchesFiniteDifferences) {
  expect_gradients(NormKind::kRmsNorm);
}

TEST(Norm, LayerNormRowsHaveMeanZeroAndVarianceOne) {
  OpBed bed("ref");
  const double ones[] = {1, 1, 1, 1, 1, 1};
  const double zeros[] = {0, 0, 0, 0, 0, 0};
  Pass pass = make_pass(bed, NormKind::kLayerNorm);
  bed.set(pass.fwd.w, ones);
  bed.set(pass.fwd.b, zeros);
  pass.fwd.eps = 0;
  bed.run(pass.fwd);
  for (std::int64_t t = 0; t < T; ++t) {
    double sum = 0;
    double squares = 0;
    for (const double y : values_of(pass.fwd.y.rows(t, 1))) {
      sum += y;
      squares += y * y;
    }
    EXPECT_NEAR(sum, 0, 1e-12);
    EXPECT_NEAR(squares, C, 1e-12);
  }
}

TEST(Norm, RmsNormByHand) {
  OpBed bed("ref");
  const double x[] = {3, 4};
  const double w[] = {1, 2};
  const double expected[] = {3 / std::sqrt(12.5), 8 / std::sqrt(12.5)};
  const Tensor y = bed.out({1, 2}, kF64);
  bed.run(NormFwd{.y = y,
                  .sum = {},
                  .mean = {},
                  .rstd = bed.out({1}, kF64),
                  .x = bed.floats({1, 2}, kF64, x),
                  .addend = {},
                  .w = bed.floats({2}, kF64, w),
                  .b = {},
                  .kind = NormKind::kRmsNorm,
                  .eps = 0});
  expect_close(values_of(y), expected, y.shape, 1e-15, "y");
}

TEST(Norm, TheSumIsNormalisedAsItIsStored) {
  // In bf16, 256 + 1 is 256: the row is constant, so its norm is b.
  OpBed bed("ref");
  const double x[] = {256, 256};
  const double addend[] = {1, 0};
  const double w[] = {1, 1};
  const double b[] = {0.5, -0.5};
  const Tensor y = bed.out({1, 2}, DType::kBF16);
  bed.run(NormFwd{.y = y,
                  .sum = bed.out({1, 2}, DType::kBF16),
                  .mean = bed.out({1}, DType::kF32),
                  .rstd = bed.out({1}, DType::kF32),
                  .x = bed.floats({1, 2}, DType::kBF16, x),
                  .addend = bed.floats({1, 2}, DType::kBF16, addend),
                  .w = bed.floats({2}, DType::kBF16, w),
                  .b = bed.floats({2}, DType::kBF16, b),
                  .kind = NormKind::kLayerNorm,
                  .eps = 1e-5});
  expect_close(values_of(y), b, y.shape, 0, "y");
}

}  // namespace
}  // namespace orthant
