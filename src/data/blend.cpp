// Shares by largest remainders, places by the smooth weighted round robin.
#include "data/blend.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace orthant {
namespace {

// Whole shares of kCycle that sum to it.
std::vector<std::int64_t> shares_of(std::span<const double> weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  ORTHANT_CHECK(std::isfinite(sum) && sum > 0, "blend: weights sum to {}", sum);
  std::vector<std::int64_t> shares(weights.size());
  std::vector<std::pair<double, std::size_t>> wanted;  // what is lost by rounding down
  std::int64_t left = Blend::kCycle;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double share = weights[i] / sum * static_cast<double>(Blend::kCycle);
    shares[i] = static_cast<std::int64_t>(share);
    if (shares[i] == 0 && weights[i] > 0) shares[i] = 1;
    wanted.emplace_back(share - static_cast<double>(shares[i]), i);
    left -= shares[i];
  }
  std::stable_sort(wanted.begin(), wanted.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  for (std::size_t i = 0; left > 0; i = (i + 1) % wanted.size()) {
    if (weights[wanted[i].second] == 0) continue;
    ++shares[wanted[i].second];
    --left;
  }
  // Places that many tiny weights took beyond their share come from the largest.
  for (; left < 0; ++left) {
    --*std::max_element(shares.begin(), shares.end());
  }
  return shares;
}

}  // namespace

Blend::Blend(std::span<const double> weights)
    : shares_(shares_of(weights)),
      source_(static_cast<std::size_t>(kCycle)),
      rank_(static_cast<std::size_t>(kCycle)) {
  std::vector<std::int64_t> due(shares_.size());
  std::vector<std::int32_t> given(shares_.size());
  for (std::size_t place = 0; place < source_.size(); ++place) {
    for (std::size_t i = 0; i < due.size(); ++i) {
      due[i] += shares_[i];
    }
    const auto next = static_cast<std::size_t>(
        std::distance(due.begin(), std::max_element(due.begin(), due.end())));
    due[next] -= kCycle;
    source_[place] = static_cast<std::int32_t>(next);
    rank_[place] = given[next]++;
  }
}

Blend::Place Blend::at(std::int64_t position) const {
  const std::int64_t cycle = position / kCycle;
  const auto place = static_cast<std::size_t>(position % kCycle);
  const std::int32_t source = source_[place];
  return {.source = source,
          .index = cycle * shares_[static_cast<std::size_t>(source)] + rank_[place]};
}

std::vector<std::int64_t> Blend::counts(std::int64_t positions) const {
  std::vector<std::int64_t> counts(shares_.size());
  for (std::size_t i = 0; i < counts.size(); ++i) {
    counts[i] = positions / kCycle * shares_[i];
  }
  for (std::size_t place = 0; place < static_cast<std::size_t>(positions % kCycle); ++place) {
    ++counts[static_cast<std::size_t>(source_[place])];
  }
  return counts;
}

}  // namespace orthant
