// Datasets mixed by weight: which of them a position reads, and which of its samples, by
// arithmetic.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace orthant {

// Positions go round in cycles of kCycle. In each, a dataset has as many places as its weight's
// share of kCycle, spread evenly; at least one when its weight is not 0. No sum ever drifts: after
// any number of cycles the shares are exact.
class Blend {
 public:
  static constexpr std::int64_t kCycle = std::int64_t{1} << 16;

  // At most kCycle weights: finite, not negative, not all 0.
  explicit Blend(std::span<const double> weights);

  struct Place {
    int source = 0;
    std::int64_t index = 0;  // samples of this source before it
  };
  Place at(std::int64_t position) const;
  // Samples of each source among the first `positions`.
  std::vector<std::int64_t> counts(std::int64_t positions) const;

 private:
  std::vector<std::int64_t> shares_;  // of a cycle
  std::vector<std::int32_t> source_;  // [kCycle]
  std::vector<std::int32_t> rank_;    // [kCycle]: places of the same source before it in the cycle
};

// The weights from a position on; a change of weights begins another era, in which every dataset
// goes on behind its last sample.
struct BlendEra {
  std::int64_t first_position = 0;
  std::vector<std::pair<std::string, double>> weights;  // prefix and weight

  friend bool operator==(const BlendEra&, const BlendEra&) = default;
};

}  // namespace orthant
