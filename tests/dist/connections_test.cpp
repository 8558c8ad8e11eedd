// Connections that are counted are those that a mesh makes.
#include "dist/connections.h"

#include <numeric>

#include <gtest/gtest.h>

namespace orthant {
namespace {

// Counts what is asked of all groups of a rank.
class CountingGroup final : public Communicator {
 public:
  CountingGroup(std::string name, std::vector<int> members, int rank, int lane,
                const CommParts& parts, Connections& made)
      : Communicator(std::move(name), std::move(members), rank, lane, parts),
        made_(made) {}
  void connect() override {
    if (size() > 1) ++(has_few_values() ? made_.small_groups : made_.large_groups);
  }
  void connect_ring() override {
    for (int other = 0; other < size(); ++other) {
      const bool is_next = (rank() + 1) % size() == other;
      const bool is_previous = (other + 1) % size() == rank();
      if (other != rank() && (is_next || is_previous)) made_.pairs += 2;  // to it and from it
    }
  }
  std::unique_ptr<Communicator> subgroup(std::string name, std::vector<int> members,
                                         int lane) override {
    const int position = position_of(members);
    return std::make_unique<CountingGroup>(std::move(name), std::move(members), position, lane,
                                           parts(), made_);
  }

 private:
  void do_start(const Call& /*call*/, Token /*token*/) override {}
  void do_wait(const Call& /*call*/, Token /*token*/) override {}
  Connections& made_;
};

MeshShape shape_of(int tp, int dp, int pp) {
  MeshShape shape;
  shape.sizes = {tp, 1, 1, dp, pp};
  return shape;
}

TEST(Connections, AreThoseThatAMeshMakes) {
  struct Case {
    MeshShape shape;
    int kv_copies = 1;
  };
  const Case cases[] = {{shape_of(1, 1, 1)},    {shape_of(2, 1, 1)},    {shape_of(1, 2, 1)},
                        {shape_of(1, 1, 2)},    {shape_of(2, 2, 3)},    {shape_of(4, 2, 2), 2},
                        {shape_of(4, 1, 1), 4}, {shape_of(2, 3, 4), 2}, {shape_of(8, 2, 4), 4}};
  for (const Case& c : cases) {
    for (int rank = 0; rank < c.shape.ranks(); ++rank) {
      Ledger ledger;
      InFlight in_flight;
      Connections made;
      std::vector<int> members(static_cast<std::size_t>(c.shape.ranks()));
      std::iota(members.begin(), members.end(), 0);
      CountingGroup world("world", members, rank, 0, {.ledger = ledger, .in_flight = in_flight},
                          made);
      const Mesh mesh(c.shape, world, c.kv_copies);
      const Connections counted = connections_of(c.shape, rank, c.kv_copies);
      EXPECT_EQ(counted.large_groups, made.large_groups) << "rank " << rank;
      EXPECT_EQ(counted.small_groups, made.small_groups) << "rank " << rank;
      EXPECT_EQ(counted.pairs, made.pairs) << "rank " << rank;
    }
  }
}

TEST(Connections, DirectSumsReachRanksOfTheHostAlone) {
  const MeshShape shape = shape_of(2, 4, 2);
  const auto peers = [&shape](const DirectSums& sums, int ranks_per_host) {
    return direct_peers_of(shape, 0, 1, sums, ranks_per_host).large;
  };
  EXPECT_EQ(peers({}, 16), 0);
  EXPECT_EQ(peers({.in_rank_order = true}, 16), 1 + 3 + 1);  // tp, dp, the other end
  EXPECT_EQ(peers({.in_rank_order = true}, 8), 1 + 3);
  EXPECT_EQ(peers({.in_rank_order = true}, 2), 1);
  // Of two ranks a 16-bit sum is rounded once anyway.
  EXPECT_EQ(peers({.has_16_bit_activations = true}, 16), 0);
  EXPECT_EQ(peers({.has_16_bit_gradients = true}, 16), 3);
  EXPECT_EQ(direct_peers_of(shape_of(8, 1, 1), 5, 4, {.in_rank_order = true}, 8).large, 7 + 3);
  // The world's others, and again those of the same dp.
  EXPECT_EQ(direct_peers_of(shape_of(2, 2, 2), 5, 1, {.in_rank_order = true}, 8).small, 7 + 3);
  EXPECT_EQ(direct_peers_of(shape_of(2, 2, 2), 5, 1, {.has_16_bit_gradients = true}, 8).small, 0);
}

}  // namespace
}  // namespace orthant
