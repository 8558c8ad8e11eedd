#include "dist/connections.h"

#include <algorithm>

namespace orthant {
namespace {

using Coords = std::array<int, kNumAxes>;

int at(const Coords& coords, Axis axis) {
  return coords[static_cast<std::size_t>(axis)];
}

// Ordered pairs of a member of a ring with its neighbours.
int ring_pairs(int size) {
  constexpr int kDirections = 2;
  const int neighbours = size == 1 ? 0 : size == 2 ? 1 : 2;
  return kDirections * neighbours;
}

bool has_kv_groups(const MeshShape& shape, int kv_copies) {
  return kv_copies > 1 && kv_copies < shape.size(Axis::kTp);
}

// The first or the last stage of several.
bool is_end(const MeshShape& shape, const Coords& coords) {
  const int stage = at(coords, Axis::kPp);
  const int last = shape.size(Axis::kPp) - 1;
  return last > 0 && (stage == 0 || stage == last);
}

}  // namespace

Connections connections_of(const MeshShape& shape, int rank, int kv_copies) {
  const int tp = shape.size(Axis::kTp);
  const int pp = shape.size(Axis::kPp);
  Connections all;
  const auto add = [](bool has_others, int& count) {
    if (has_others) ++count;
  };
  add(tp > 1, all.large_groups);
  add(shape.size(Axis::kDp) > 1, all.large_groups);
  add(has_kv_groups(shape, kv_copies), all.large_groups);
  add(is_end(shape, shape.coords_of(rank)), all.large_groups);
  add(shape.ranks() > 1, all.small_groups);
  add(tp * pp > 1, all.small_groups);
  constexpr int kKindsOfMessages = 2;  // activations and gradients
  all.pairs = kKindsOfMessages * ring_pairs(pp) + (tp == 2 ? ring_pairs(tp) : 0);
  return all;
}

DirectPeers direct_peers_of(const MeshShape& shape, int rank, int kv_copies, const DirectSums& sums,
                            int ranks_per_host) {
  const auto is_direct = [&sums](int size, bool is_16_bit) {
    return sums.in_rank_order || (is_16_bit && size > 2);
  };
  const int tp = shape.size(Axis::kTp);
  const bool over_tp = is_direct(tp, sums.has_16_bit_activations);
  const bool over_dp = is_direct(shape.size(Axis::kDp), sums.has_16_bit_gradients);
  const bool over_kv =
      has_kv_groups(shape, kv_copies) && is_direct(kv_copies, sums.has_16_bit_gradients);
  const bool over_ends = is_direct(2, sums.has_16_bit_gradients);
  const Coords own = shape.coords_of(rank);
  const int first = rank / ranks_per_host * ranks_per_host;
  DirectPeers peers;
  for (int other = first; other < std::min(shape.ranks(), first + ranks_per_host); ++other) {
    if (other == rank) continue;
    const Coords theirs = shape.coords_of(other);
    const auto is_along = [&](Axis only) {
      for (const Axis axis : {Axis::kTp, Axis::kDp, Axis::kPp}) {
        if (axis != only && at(own, axis) != at(theirs, axis)) return false;
      }
      return true;
    };
    const bool is_in_tp = is_along(Axis::kTp);
    const bool holds_same = at(own, Axis::kTp) / kv_copies == at(theirs, Axis::kTp) / kv_copies;
    peers.large += over_tp && is_in_tp ? 1 : 0;
    peers.large += over_kv && is_in_tp && holds_same ? 1 : 0;
    peers.large += over_dp && is_along(Axis::kDp) ? 1 : 0;
    const bool are_ends = is_end(shape, own) && is_end(shape, theirs);
    peers.large += over_ends && are_ends && is_along(Axis::kPp) ? 1 : 0;
    // Losses and votes of the world, norms of the model.
    const bool is_in_model = at(own, Axis::kDp) == at(theirs, Axis::kDp);
    if (sums.in_rank_order) peers.small += is_in_model ? 2 : 1;
  }
  return peers;
}

}  // namespace orthant
