// Linear layers: a product worked out by hand, and both gradients.
#include <gtest/gtest.h>

#include "tests/support/grad_check.h"

namespace orthant {
namespace {

constexpr DType kF64 = DType::kF64;

TEST(Linear, ForwardMultipliesByTheTransposedWeight) {
  OpBed bed("ref");
  const double x[] = {1, 2, 3, 4, 5, 6};
  const double w[] = {1, 0, -1, 2, 1, 0};
  const double b[] = {10, 20};
  const double expected[] = {8, 24, 8, 33};
  const Tensor y = bed.out({2, 2}, DType::kF32);
  bed.run(LinearFwd{.y = y,
                    .x = bed.floats({2, 3}, DType::kF32, x),
                    .w = bed.floats({2, 3}, DType::kF32, w),
                    .b = bed.floats({2}, DType::kF32, b)});
  expect_close(values_of(y), expected, y.shape, 0, "y");
}

TEST(Linear, BackwardMatchesFiniteDifferences) {
  OpBed bed("ref");
  const std::int64_t T = 5;
  const std::int64_t I = 4;
  const std::int64_t O = 3;
  const Tensor y = bed.out({T, O}, kF64);
  const Tensor x = bed.normal("x", {T, I}, kF64);
  const Tensor w = bed.normal("w", {O, I}, kF64);
  const Tensor b = bed.normal("b", {O}, kF64);
  const Tensor dy = bed.normal("dy", {T, O}, kF64);
  const Tensor dx = bed.out({T, I}, kF64);
  const Tensor dw = bed.zeros({O, I}, kF64);
  const Tensor db = bed.zeros({O}, kF64);
  const auto objective = [&] {
    bed.run(LinearFwd{.y = y, .x = x, .w = w, .b = b});
    return inner(y, dy);
  };
  bed.run(LinearBwdInput{.dx = dx, .dy = dy, .w = w});
  bed.run(LinearBwdWeight{.dw = dw, .db = db, .dy = dy, .x = x});
  expect_gradient(objective, x, dx, "dx");
  expect_gradient(objective, w, dw, "dw");
  expect_gradient(objective, b, db, "db");
}

TEST(Linear, WeightGradientsAreAddedTo) {
  OpBed bed("ref");
  const Tensor dw = bed.zeros({3, 4}, kF64);
  const Tensor db = bed.zeros({3}, kF64);
  const LinearBwdWeight a{
      .dw = dw, .db = db, .dy = bed.normal("dy", {5, 3}, kF64), .x = bed.normal("x", {5, 4}, kF64)};
  bed.run(a);
  std::vector<double> twice_dw = values_of(dw);
  std::vector<double> twice_db = values_of(db);
  for (double& value : twice_dw)
    value *= 2;
  for (double& value : twice_db)
    value *= 2;
  bed.run(a);
  expect_close(values_of(dw), twice_dw, dw.shape, 1e-14, "dw");
  expect_close(values_of(db), twice_db, db.shape, 1e-14, "db");
}

TEST(Linear, AProductCountsTwoFlopsForEachTerm) {
  OpBed bed("meta");
  bed.run(LinearFwd{.y = bed.out({7, 5}, DType::kF32),
                    .x = bed.out({7, 13}, DType::kF32),
                    .w = bed.out({5, 13}, DType::kF32),
                    .b = {}});
  const Cost& cost = bed.ledger().entries()[0].cost;
  EXPECT_EQ(cost.flops, 2 * 7 * 13 * 5);
  EXPECT_EQ(cost.bytes, 4 * (7 * 13 + 5 * 13 + 7 * 5));
}

}  // namespace
}  // namespace orthant
