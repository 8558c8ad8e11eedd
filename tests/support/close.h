// expect_close: compares tensors, and says where and how far they differ and how to see it again.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/op_bed.h"

namespace orthant {

inline std::string repro_line() {
  const ::testing::TestInfo* test = ::testing::UnitTest::GetInstance()->current_test_info();
  if (test == nullptr) return "";
  return fmt::format("repro: bin/{} --gtest_filter={}.{}", program_invocation_short_name,
                     test->test_suite_name(), test->name());
}

// [2,3] and 4 -> [1,1]
inline std::string index_text(const Shape& shape, std::int64_t element) {
  std::vector<std::int64_t> index(static_cast<std::size_t>(shape.rank()));
  for (int i = shape.rank() - 1; i >= 0; --i) {
    index[static_cast<std::size_t>(i)] = element % shape[i];
    element /= shape[i];
  }
  return fmt::format("[{}]", fmt::join(index, ","));
}

// `tol` is relative to the largest element that is expected. Infinities must be the same.
inline void expect_close(std::span<const double> actual, std::span<const double> expected,
                         const Shape& shape, double tol, std::string_view name) {
  ASSERT_EQ(actual.size(), expected.size()) << name << '\n' << repro_line();
  double largest = 0;
  for (const double value : expected) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  double worst = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    double error = actual[i] == expected[i] ? 0 : std::abs(actual[i] - expected[i]);
    if (std::isnan(error)) error = std::numeric_limits<double>::infinity();
    if (error > worst) {
      worst = error;
      at = i;
    }
  }
  EXPECT_LE(worst, tol * largest) << fmt::format(
      "{} {}: worst element {} is {}, expected {}; off by {:.3g}, allowed {:.3g} ({:.1g} of the "
      "largest, {:.3g})\n{}",
      name, shape.text(), index_text(shape, static_cast<std::int64_t>(at)), actual[at],
      expected[at], worst, tol * largest, tol, largest, repro_line());
}

// Float tensors by `tol`, whole numbers and StepState's integers exactly.
inline void expect_close(const Tensor& actual, const Tensor& expected, double tol,
                         std::string_view name) {
  ASSERT_EQ(actual.shape, expected.shape) << name << '\n' << repro_line();
  ASSERT_EQ(actual.dtype, expected.dtype) << name << '\n' << repro_line();
  if (expected.count() == 0) return;
  if (expected.dtype == DType::kU8 && expected.shape == step_state_shape()) {
    const StepState a = state_of(actual);
    const StepState e = state_of(expected);
    EXPECT_EQ(a.skip, e.skip) << name << '\n' << repro_line();
    EXPECT_EQ(a.updates, e.updates) << name << '\n' << repro_line();
    const auto one = [&](double x, double y, std::string_view field) {
      expect_close(std::span(&x, 1), std::span(&y, 1), Shape{1}, tol,
                   fmt::format("{}.{}", name, field));
    };
    one(a.loss_sum, e.loss_sum, "loss_sum");
    one(a.grad_norm, e.grad_norm, "grad_norm");
    one(a.clip_factor, e.clip_factor, "clip_factor");
    return;
  }
  const bool is_whole = expected.dtype == DType::kI16 || expected.dtype == DType::kI32 ||
                        expected.dtype == DType::kI64 || expected.dtype == DType::kU8;
  expect_close(values_of(actual), values_of(expected), expected.shape, is_whole ? 0 : tol, name);
}

}  // namespace orthant
