// Connections: what a rank is connected to before its first step, counted: the memory that
// libraries take for it depends on these numbers.
#pragma once

#include "dist/mesh.h"

namespace orthant {

struct Connections {
  int large_groups = 0;  // of more than one rank
  int small_groups = 0;  // whose calls in a step are of few values
  int pairs = 0;         // ordered pairs of a rank and a neighbour, for messages of one kind
};

// Of a rank of Mesh(shape, world, kv_copies), which connects these.
Connections connections_of(const MeshShape& shape, int rank, int kv_copies);

// In which sums every rank of a group sends its part to every other: those that are added in rank
// order, and 16-bit sums of more than two.
struct DirectSums {
  bool in_rank_order = false;
  bool has_16_bit_activations = false;
  bool has_16_bit_gradients = false;
};

// Other ranks of the same host, `ranks_per_host` in a row, that a rank reaches in such sums, one
// group after another.
struct DirectPeers {
  int large = 0;  // by large groups
  int small = 0;
};
DirectPeers direct_peers_of(const MeshShape& shape, int rank, int kv_copies, const DirectSums& sums,
                            int ranks_per_host);

}  // namespace orthant
