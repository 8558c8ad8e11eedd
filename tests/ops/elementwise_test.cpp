// Element by element: dropout's share, mask and gradient, casts, and counts of what is not finite.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/support/grad_check.h"

namespace orthant {
namespace {

constexpr DType kF64 = DType::kF64;
constexpr std::int64_t kSamples[] = {17, 4};

Dropout make_dropout(OpBed& bed, std::int64_t S, std::int64_t C, double p) {
  return {.y = bed.out({2 * S, C}, kF64),
          .x = bed.normal("x", {2 * S, C}, kF64),
          .sample_ids = bed.whole({2}, DType::kI64, kSamples),
          .step_state = bed.step_state({.step = 5, .seed = 9}),
          .S = S,
          .first_row = 0,
          .p = p,
          .site = 3};
}

TEST(Dropout, KeepsItsShareAndScalesIt) {
  OpBed bed("ref");
  const Dropout a = make_dropout(bed, 100, 50, 0.2);
  bed.run(a);
  const std::vector<double> x = values_of(a.x);
  const std::vector<double> y = values_of(a.y);
  double num_kept = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (y[i] == 0) continue;
    EXPECT_DOUBLE_EQ(y[i], x[i] / 0.8);
    ++num_kept;
  }
  // Five standard deviations of 10000 draws.
  EXPECT_NEAR(num_kept / 10000, 0.8, 5 * std::sqrt(0.8 * 0.2 / 10000));
}

TEST(Dropout, IsItsOwnBackward) {
  OpBed bed("ref");
  const Dropout a = make_dropout(bed, 3, 4, 0.4);
  const Tensor dy = bed.normal("dy", a.x.shape, kF64);
  Dropout back = a;
  back.y = bed.out(a.x.shape, kF64);
  back.x = dy;
  bed.run(back);
  const auto objective = [&] {
    bed.run(a);
    return inner(a.y, dy);
  };
  expect_gradient(objective, a.x, back.y, "dx");
}

TEST(Dropout, RowsOfARankDropWhatTheWholeDrops) {
  OpBed bed("ref");
  const Dropout whole = make_dropout(bed, 6, 5, 0.5);
  bed.run(whole);
  for (const std::int64_t first_row : {0, 4, 8}) {
    Dropout part = whole;
    part.x = whole.x.rows(first_row, 4);
    part.y = bed.out({4, 5}, kF64);
    part.first_row = first_row;
    bed.run(part);
    expect_close(part.y, whole.y.rows(first_row, 4), 0, "rows");
  }
  // The second sample alone.
  Dropout part = whole;
  part.x = whole.x.rows(6, 6);
  part.y = bed.out({6, 5}, kF64);
  part.sample_ids = whole.sample_ids.rows(1, 1);
  bed.run(part);
  expect_close(part.y, whole.y.rows(6, 6), 0, "sample");
}

TEST(Dropout, StepsSitesAndSeedsDropDifferently) {
  OpBed bed("ref");
  const Dropout a = make_dropout(bed, 16, 16, 0.5);
  bed.run(a);
  Dropout b = a;
  b.y = bed.out(a.x.shape, kF64);
  const auto num_equal = [&] {
    bed.run(b);
    const std::vector<double> first = values_of(a.y);
    const std::vector<double> second = values_of(b.y);
    int count = 0;
    for (std::size_t i = 0; i < first.size(); ++i) {
      count += (first[i] == 0) == (second[i] == 0);
    }
    return count;
  };
  EXPECT_EQ(num_equal(), 512);
  b.site = 4;
  EXPECT_LT(num_equal(), 320);
  b.site = 3;
  b.step_state = bed.step_state({.step = 6, .seed = 9});
  EXPECT_LT(num_equal(), 320);
  b.step_state = bed.step_state({.step = 5, .seed = 10});
  EXPECT_LT(num_equal(), 320);
}

TEST(Copy, RoundsToNearestEven) {
  OpBed bed("ref");
  const double x[] = {1.00390625, 1.01171875, -1.0039064, 3.4e38};
  const double expected[] = {1, 1.015625, -1.0078125, std::numeric_limits<double>::infinity()};
  const Tensor y = bed.out({4}, DType::kBF16);
  bed.run(Copy{.y = y, .x = bed.floats({4}, DType::kF32, x)});
  EXPECT_EQ(values_of(y), std::vector<double>(expected, expected + 4));
}

TEST(Copy, CopiesWholeNumbersBitForBit) {
  OpBed bed("ref");
  const Tensor x = bed.whole("x", {33}, DType::kI64, -1000, 1000);
  const Tensor y = bed.out({33}, DType::kI64);
  bed.run(Copy{.y = y, .x = x});
  expect_close(y, x, 0, "y");
}

TEST(Accumulate, AddsBf16ToF32) {
  OpBed bed("ref");
  const double y[] = {1, 2};
  const double x[] = {0.5, -3};
  const double expected[] = {1.5, -1};
  const Tensor sum = bed.floats({2}, DType::kF32, y);
  bed.run(Accumulate{.y = sum, .x = bed.floats({2}, DType::kBF16, x)});
  expect_close(values_of(sum), expected, {2}, 0, "y");
}

TEST(CountNonFinite, CountsInfinitiesAndNans) {
  OpBed bed("ref");
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double x[] = {0, kInfinity, -kInfinity, std::nan(""), 1e30};
  for (const DType type : {DType::kF32, DType::kBF16}) {
    const Tensor count = bed.whole("count", {1}, DType::kI64, 10, 10);
    bed.run(CountNonFinite{.count = count, .x = bed.floats({5}, type, x)});
    EXPECT_EQ(values_of(count)[0], 13);
  }
}

}  // namespace
}  // namespace orthant
