#include "train/compare_gradients.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include <fmt/format.h>

namespace orthant {
namespace {

bool is_near(double a, double b) {
  return std::abs(a - b) <= 0.02 * b;
}

// Of a gradient that is a multiple of what it should be.
std::string explain_factor(double factor, const RunConfig& config) {
  const int tp = config.layout.tp;
  const int dp = config.layout.dp();
  if (factor == 0) return "nothing was added to it";
  if (is_near(factor, 2)) return "it was counted twice";
  if (tp > 1 && is_near(factor, tp)) return "it was added over tp once too often";
  if (dp > 1 && is_near(factor, dp)) return "it was added over dp once too often";
  if (tp > 1 && is_near(factor, 1.0 / tp)) return "a sum over tp was missing";
  if (dp > 1 && is_near(factor, 1.0 / dp)) return "a sum over dp was missing";
  return fmt::format("it was multiplied by {:.4g}", factor);
}

}  // namespace

std::vector<float> whole_tensor(const ParamSource& source, const ParamSpec& spec) {
  std::vector<float> values(static_cast<std::size_t>(spec.global.count()));
  source.read(spec, StateKind::kWeight, 0, values);
  return values;
}

TensorDifference compare(std::span<const float> expected, std::span<const float> found) {
  double ee = 0;
  double ff = 0;
  double ef = 0;
  double dd = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double e = expected[i];
    const double f = found[i];
    ee += e * e;
    ff += f * f;
    ef += e * f;
    dd += (f - e) * (f - e);
  }
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  TensorDifference result{.expected = std::sqrt(ee), .found = std::sqrt(ff)};
  if (!std::isfinite(dd) || (ee == 0 && ff > 0)) {
    result.error = result.rest = kInfinity;
  } else if (ee > 0) {
    result.error = std::sqrt(dd / ee);
    result.factor = ef / ee;
    result.rest = std::sqrt(std::max(0.0, ff - ef * ef / ee) / ee);
  }
  return result;
}

std::vector<TensorDifference> compare_all(const std::vector<ParamSpec>& params,
                                          const ParamSource& expected, const ParamSource& found) {
  std::vector<TensorDifference> all;
  all.reserve(params.size());
  for (const ParamSpec& spec : params) {
    all.push_back(compare(whole_tensor(expected, spec), whole_tensor(found, spec)));
    all.back().spec = &spec;
  }
  std::stable_sort(
      all.begin(), all.end(),
      [](const TensorDifference& a, const TensorDifference& b) { return a.error > b.error; });
  return all;
}

std::string explain(const std::vector<TensorDifference>& all, double allowed,
                    const RunConfig& config) {
  const TensorDifference& worst = all.front();
  if (!std::isfinite(worst.error)) return "a number had overflowed";
  constexpr double kRounding = 0.01;
  if (allowed == 0 && worst.error < kRounding) {
    return "sums were made in another order, or rounded otherwise";
  }
  if (worst.rest <= std::max(kRounding, allowed)) return explain_factor(worst.factor, config);
  const bool is_of_whole_tensors =
      std::all_of(all.begin(), all.end(), [allowed](const TensorDifference& tensor) {
        return tensor.error <= allowed || tensor.spec->split_dim < 0;
      });
  if (config.layout.tp > 1 && is_of_whole_tensors) {
    return "a sum over tp was missing, since only tensors are off that every tp rank has whole";
  }
  return {};
}

std::string explain_by_micro(std::span<const float> expected, std::span<const float> found,
                             const std::vector<std::vector<float>>& micros, int dp) {
  std::vector<float> missing(expected.size());
  std::transform(expected.begin(), expected.end(), found.begin(), missing.begin(), std::minus<>());
  constexpr double kMost = 0.1;  // of the part that is missing
  for (std::size_t i = 0; i < micros.size(); ++i) {
    const TensorDifference part = compare(micros[i], missing);
    if (part.rest > kMost || std::abs(std::abs(part.factor) - 1) > kMost) continue;
    const std::size_t ranks = static_cast<std::size_t>(dp);
    return fmt::format("micro-batch {} of dp rank {} was {}", i / ranks, i % ranks,
                       part.factor > 0 ? "left out" : "counted twice");
  }
  std::vector<float> of_rank(expected.size());
  for (std::size_t rank = 0; dp > 1 && rank < static_cast<std::size_t>(dp); ++rank) {
    std::fill(of_rank.begin(), of_rank.end(), 0.0f);
    for (std::size_t i = rank; i < micros.size(); i += static_cast<std::size_t>(dp)) {
      std::transform(of_rank.begin(), of_rank.end(), micros[i].begin(), of_rank.begin(),
                     std::plus<>());
    }
    const TensorDifference part = compare(of_rank, missing);
    if (part.rest > kMost || std::abs(part.factor - 1) > kMost) continue;
    return fmt::format("the part of dp rank {} was left out", rank);
  }
  return "a part of a sum was left out, or another's was added";
}

}  // namespace orthant
