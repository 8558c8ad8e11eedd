// The mesh: ranks and coordinates are one to one, and groups hold the ranks that they should.
#include "dist/mesh.h"

#include <set>

#include <gtest/gtest.h>

#include "base/check.h"
#include "tests/comm/rank_bed.h"

namespace orthant {
namespace {

LayoutConfig layout_of(int tp, int dp, int pp) {
  LayoutConfig layout;
  layout.ranks = tp * dp * pp;
  layout.tp = tp;
  layout.pp = pp;
  return layout;
}

TEST(MeshShape, RanksAndCoordinatesAreOneToOne) {
  for (const int tp : {1, 2, 3}) {
    for (const int dp : {1, 2, 5}) {
      for (const int pp : {1, 4}) {
        const MeshShape shape = mesh_shape(layout_of(tp, dp, pp));
        EXPECT_EQ(shape.ranks(), tp * dp * pp);
        for (int rank = 0; rank < shape.ranks(); ++rank) {
          const auto coords = shape.coords_of(rank);
          EXPECT_EQ(shape.rank_of(coords), rank);
          EXPECT_EQ(rank, coords[static_cast<std::size_t>(Axis::kTp)] +
                              tp * (coords[static_cast<std::size_t>(Axis::kDp)] +
                                    dp * coords[static_cast<std::size_t>(Axis::kPp)]));
        }
        EXPECT_THROW((void)shape.coords_of(shape.ranks()), Error);
      }
    }
  }
}

TEST(Mesh, GroupsAreThoseAlongTheirAxes) {
  const MeshShape shape = mesh_shape(layout_of(2, 3, 4));
  RankBed bed(9, 24);  // tp 1, dp 1, pp 1
  const Mesh mesh(shape, *bed.comm);
  EXPECT_EQ(mesh.coord(Axis::kTp), 1);
  EXPECT_EQ(mesh.coord(Axis::kDp), 1);
  EXPECT_EQ(mesh.coord(Axis::kPp), 1);
  EXPECT_EQ(mesh.tp().members(), (std::vector<int>{8, 9}));
  EXPECT_EQ(mesh.tp().rank(), 1);
  EXPECT_EQ(mesh.dp().members(), (std::vector<int>{7, 9, 11}));
  EXPECT_EQ(mesh.pp_acts().members(), (std::vector<int>{3, 9, 15, 21}));
  EXPECT_EQ(mesh.pp_grads().members(), mesh.pp_acts().members());
  EXPECT_EQ(mesh.model().members(), (std::vector<int>{2, 3, 8, 9, 14, 15, 20, 21}));
  EXPECT_EQ(mesh.ends().members(), (std::vector<int>{9}));
  EXPECT_FALSE(mesh.is_first_stage());
  EXPECT_FALSE(mesh.is_last_stage());
}

TEST(Mesh, NeighboursInTpHoldOneKeyValueHead) {
  const MeshShape shape = mesh_shape(layout_of(8, 2, 2));
  RankBed bed(21, 32);  // tp 5, dp 0, pp 1
  const Mesh mesh(shape, *bed.comm, 2);
  EXPECT_EQ(mesh.holders(2).members(), (std::vector<int>{20, 21}));
  EXPECT_EQ(&mesh.holders(8), &mesh.tp());
  EXPECT_THROW((void)mesh.holders(4), Error);
}

TEST(Mesh, EndsAreTheFirstAndLastStage) {
  const MeshShape shape = mesh_shape(layout_of(2, 1, 3));
  for (const int rank : {1, 5}) {
    RankBed bed(rank, 6);
    const Mesh mesh(shape, *bed.comm);
    EXPECT_EQ(mesh.ends().members(), (std::vector<int>{1, 5}));
  }
  RankBed bed(1, 2);
  const Mesh flat(mesh_shape(layout_of(2, 1, 1)), *bed.comm);
  EXPECT_EQ(flat.ends().size(), 1);
  EXPECT_TRUE(flat.is_first_stage() && flat.is_last_stage());
}

TEST(Mesh, GroupsHaveLanesOfTheirOwn) {
  RankBed bed(0, 8);
  const Mesh mesh(mesh_shape(layout_of(2, 2, 2)), *bed.comm);
  const Tensor t = bed.alloc({4}, DType::kF32);
  for (Communicator* group : {&mesh.world(), &mesh.tp(), &mesh.dp(), &mesh.pp_acts(),
                              &mesh.pp_grads(), &mesh.model(), &mesh.ends()}) {
    group->broadcast(t, 0);
  }
  std::set<Lane> lanes;
  for (const Entry& entry : bed.ledger.entries()) {
    lanes.insert(entry.lane);
  }
  EXPECT_EQ(lanes.size(), 7u);
}

TEST(Mesh, GroupsOfThreadsReachTheirRanks) {
  const MeshShape shape = mesh_shape(layout_of(2, 2, 2));
  run_ranks(8, 60, [&shape](RankBed& bed) {
    const Mesh mesh(shape, *bed.comm);
    const auto sum_over = [&](Communicator& group) {
      const Tensor t = bed.alloc({1}, DType::kI64);
      *t.ptr<std::int64_t>() = std::int64_t{1} << (4 * mesh.rank());
      group.all_reduce(t, Reduce::kSum);
      std::int64_t expected = 0;
      for (const int member : group.members()) {
        expected |= std::int64_t{1} << (4 * member);
      }
      EXPECT_EQ(*t.ptr<std::int64_t>(), expected) << group.name();
    };
    for (Communicator* group :
         {&mesh.tp(), &mesh.dp(), &mesh.pp_acts(), &mesh.pp_grads(), &mesh.model(), &mesh.ends()}) {
      sum_over(*group);
    }
  });
}

TEST(Mesh, OfAnotherSizeThanTheWorldIsRefused) {
  RankBed bed(0, 6);
  EXPECT_THROW(Mesh(mesh_shape(layout_of(2, 2, 1)), *bed.comm), Error);
}

}  // namespace
}  // namespace orthant
