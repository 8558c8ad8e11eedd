#include "pipeline/placement.h"

#include <algorithm>

#include "base/check.h"

namespace orthant {

Placement::Placement(std::vector<int> ranks) {
  ORTHANT_CHECK(!ranks.empty(), "placement: a model has at least one part");
  const auto [least, most] = std::minmax_element(ranks.begin(), ranks.end());
  ORTHANT_CHECK(*least >= 0 && *most < static_cast<int>(ranks.size()),
                "placement: ranks {} to {} of {} parts; count them from 0", *least, *most,
                ranks.size());
  parts_.resize(static_cast<std::size_t>(*most) + 1);
  for (const int rank : ranks) {
    std::vector<int>& own = parts_[static_cast<std::size_t>(rank)];
    own.push_back(num_parts());
    places_.push_back({rank, static_cast<int>(own.size()) - 1});
  }
  for (int rank = 0; rank < num_ranks(); ++rank) {
    ORTHANT_CHECK(num_chunks(rank) > 0, "placement: rank {} of {} has no part", rank, num_ranks());
  }
}

const std::vector<int>& Placement::parts_of(int rank) const {
  ORTHANT_CHECK(rank >= 0 && rank < num_ranks(), "placement: there is no rank {}, there are {}",
                rank, num_ranks());
  return parts_[static_cast<std::size_t>(rank)];
}

int Placement::part_at(int rank, int chunk) const {
  const std::vector<int>& own = parts_of(rank);
  ORTHANT_CHECK(chunk >= 0 && chunk < static_cast<int>(own.size()),
                "placement: rank {} has no chunk {}; it has {} of the {} parts", rank, chunk,
                own.size(), num_parts());
  return own[static_cast<std::size_t>(chunk)];
}

Placement straight(int num_ranks) {
  return looped(num_ranks, 1);
}

Placement looped(int num_ranks, int num_loops) {
  std::vector<int> ranks;
  for (int part = 0; part < num_ranks * num_loops; ++part) {
    ranks.push_back(part % num_ranks);
  }
  return Placement(std::move(ranks));
}

Placement v_shape(int num_ranks) {
  std::vector<int> ranks;
  for (int part = 0; part < 2 * num_ranks; ++part) {
    ranks.push_back(part < num_ranks ? part : 2 * num_ranks - 1 - part);
  }
  return Placement(std::move(ranks));
}

}  // namespace orthant
