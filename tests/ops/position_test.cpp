// Rotary positions: the identity at 0, the half-split form, inverse and gradient.
#include <cmath>

#include <gtest/gtest.h>

#include "tests/ops/attention_cases.h"
#include "tests/support/grad_check.h"

namespace orthant {
namespace {

constexpr DType kF64 = DType::kF64;

Rotary make_rotary(OpBed& bed, std::span<const std::int64_t> positions) {
  const auto T = static_cast<std::int64_t>(positions.size());
  return {.qkv = bed.normal("qkv", {T, (2 + 2) * 4}, kF64),
          .positions = bed.whole({T}, DType::kI32, positions),
          .inv_freq = bed.floats({2}, DType::kF32, rotary_frequencies(4)),
          .H = 2,
          .G = 1,
          .direction = Rotate::kForward};
}

TEST(Rotary, PositionZeroIsTheIdentity) {
  OpBed bed("ref");
  const std::int64_t positions[] = {0, 0};
  const Rotary a = make_rotary(bed, positions);
  const std::vector<double> before = values_of(a.qkv);
  bed.run(a);
  expect_close(values_of(a.qkv), before, a.qkv.shape, 0, "qkv");
}

TEST(Rotary, PairsAreHalfAHeadApartAndValuesStay) {
  OpBed bed("ref");
  const std::int64_t positions[] = {3};
  const Rotary a = make_rotary(bed, positions);
  const std::vector<double> x = values_of(a.qkv);
  bed.run(a);
  std::vector<double> expected = x;
  for (const std::size_t head : {0, 1, 2}) {
    for (const std::size_t i : {0, 1}) {
      const double angle = 3 * (i == 0 ? 1 : 0.01);
      const double first = x[head * 4 + i];
      const double second = x[head * 4 + i + 2];
      expected[head * 4 + i] = first * std::cos(angle) - second * std::sin(angle);
      expected[head * 4 + i + 2] = second * std::cos(angle) + first * std::sin(angle);
    }
  }
  expect_close(values_of(a.qkv), expected, a.qkv.shape, 1e-7, "qkv");
}

TEST(Rotary, BackwardUndoesForward) {
  OpBed bed("ref");
  const std::int64_t positions[] = {1, 77, 4095, 131071};
  Rotary a = make_rotary(bed, positions);
  const std::vector<double> before = values_of(a.qkv);
  bed.run(a);
  a.direction = Rotate::kBackward;
  bed.run(a);
  expect_close(values_of(a.qkv), before, a.qkv.shape, 1e-6, "qkv");
}

TEST(Rotary, BackwardMatchesFiniteDifferences) {
  OpBed bed("ref");
  const std::int64_t positions[] = {1, 5, 1000};
  const Rotary a = make_rotary(bed, positions);
  const Tensor x = bed.normal("x", a.qkv.shape, kF64);
  const Tensor dy = bed.normal("dy", a.qkv.shape, kF64);
  const auto objective = [&] {
    bed.set(a.qkv, values_of(x));
    bed.run(a);
    return inner(a.qkv, dy);
  };
  Rotary back = a;
  back.qkv = bed.normal("dy", a.qkv.shape, kF64);
  back.direction = Rotate::kBackward;
  bed.run(back);
  expect_gradient(objective, x, back.qkv, "dqkv");
}

TEST(Rotary, LongPositionsRotateByTheF32Angle) {
  OpBed bed("ref");
  const std::int64_t positions[] = {100003};
  const Rotary a = make_rotary(bed, positions);
  const std::vector<double> x = values_of(a.qkv);
  bed.run(a);
  const float angle = 100003.0f * 0.01f;
  const double expected = x[1] * static_cast<float>(std::cos(static_cast<double>(angle))) -
                          x[3] * static_cast<float>(std::sin(static_cast<double>(angle)));
  EXPECT_DOUBLE_EQ(values_of(a.qkv)[1], expected);
}

}  // namespace
}  // namespace orthant
