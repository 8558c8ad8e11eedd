// Placement: which pipeline rank has which part of the model. A rank's parts are its chunks,
// numbered in the order of the model.
#pragma once

#include <vector>

namespace orthant {

class Placement {
 public:
  struct Place {
    int rank;
    int chunk;
  };
  // Ranks of the parts in the order of the model. Every rank from 0 on has at least one.
  explicit Placement(std::vector<int> ranks);

  int num_parts() const { return static_cast<int>(places_.size()); }
  int num_ranks() const { return static_cast<int>(parts_.size()); }
  int num_chunks(int rank) const { return static_cast<int>(parts_of(rank).size()); }
  Place at(int part) const { return places_.at(static_cast<std::size_t>(part)); }
  int part_at(int rank, int chunk) const;

 private:
  const std::vector<int>& parts_of(int rank) const;

  std::vector<Place> places_;            // by part
  std::vector<std::vector<int>> parts_;  // by rank, chunk
};

Placement straight(int num_ranks);               // one part a rank
Placement looped(int num_ranks, int num_loops);  // from the last rank on to the first, again
Placement v_shape(int num_ranks);                // there and back: the first and the last part
                                                 // share a rank

}  // namespace orthant
