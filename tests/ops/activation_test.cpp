// GELU and SwiGLU: known values and gradients.
#include <cmath>

#include <gtest/gtest.h>

#include "tests/support/grad_check.h"

namespace orthant {
namespace {

constexpr DType kF64 = DType::kF64;

TEST(Gelu, IsTheTanhForm) {
  OpBed bed("ref");
  const double x[] = {-3, -1, 0, 1, 3};
  // x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), worked out in Python.
  const double expected[] = {-0.0036373920817729943, -0.15880800939172324, 0, 0.8411919906082768,
                             2.996362607918227};
  const Tensor y = bed.out({1, 5}, kF64);
  bed.run(GeluFwd{.y = y, .x = bed.floats({1, 5}, kF64, x)});
  expect_close(values_of(y), expected, y.shape, 1e-14, "y");
}

TEST(Gelu, BackwardMatchesFiniteDifferences) {
  OpBed bed("ref");
  const Tensor y = bed.out({5, 7}, kF64);
  const Tensor x = bed.normal("x", {5, 7}, kF64, 2);
  const Tensor dy = bed.normal("dy", {5, 7}, kF64);
  const Tensor dx = bed.out({5, 7}, kF64);
  const auto objective = [&] {
    bed.run(GeluFwd{.y = y, .x = x});
    return inner(y, dy);
  };
  bed.run(GeluBwd{.dx = dx, .dy = dy, .x = x});
  expect_gradient(objective, x, dx, "dx");
}

TEST(Swiglu, GatesComeBeforeUps) {
  OpBed bed("ref");
  const double gate_up[] = {1, 2, 10, 100};
  const double expected[] = {10 / (1 + std::exp(-1)), 200 / (1 + std::exp(-2))};
  const Tensor y = bed.out({1, 2}, kF64);
  bed.run(SwigluFwd{.y = y, .gate_up = bed.floats({1, 4}, kF64, gate_up)});
  expect_close(values_of(y), expected, y.shape, 1e-15, "y");
}

TEST(Swiglu, BackwardMatchesFiniteDifferences) {
  OpBed bed("ref");
  const Tensor y = bed.out({5, 3}, kF64);
  const Tensor gate_up = bed.normal("gate_up", {5, 6}, kF64, 2);
  const Tensor dy = bed.normal("dy", {5, 3}, kF64);
  const Tensor d_gate_up = bed.out({5, 6}, kF64);
  const auto objective = [&] {
    bed.run(SwigluFwd{.y = y, .gate_up = gate_up});
    return inner(y, dy);
  };
  bed.run(SwigluBwd{.d_gate_up = d_gate_up, .dy = dy, .gate_up = gate_up});
  expect_gradient(objective, gate_up, d_gate_up, "d_gate_up");
}

}  // namespace
}  // namespace orthant
