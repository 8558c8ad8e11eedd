// Gradients against central differences, in f64 on the ref backend.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "tests/support/close.h"

namespace orthant {

// The inner product of two f64 tensors: what a scalar function of an op's output is made of.
inline double inner(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (std::int64_t i = 0; i < a.count(); ++i) {
    sum += a.ptr<const double>()[i] * b.ptr<const double>()[i];
  }
  return sum;
}

// `objective` runs forward and returns a number; `x` is an f64 tensor that it reads, `dx` the
// gradient that backward gave.
inline void expect_gradient(const std::function<double()>& objective, const Tensor& x,
                            const Tensor& dx, std::string_view name, double tol = 1e-7) {
  constexpr double kStep = 1e-5;
  std::vector<double> differences;
  for (std::int64_t i = 0; i < x.count(); ++i) {
    double& element = x.ptr<double>()[i];
    const double before = element;
    element = before + kStep;
    const double above = objective();
    element = before - kStep;
    const double below = objective();
    element = before;
    differences.push_back((above - below) / (2 * kStep));
  }
  expect_close(values_of(dx), differences, x.shape, tol, name);
}

}  // namespace orthant
