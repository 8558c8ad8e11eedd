// Where parameters lie in a unit, and what of it a rank has.
#include "params/unit.h"

#include <gtest/gtest.h>

#include "ops/update.h"

namespace orthant {
namespace {

Param param(const std::string& name, std::int64_t count, int copies = 1, bool is_partial = false) {
  Param made = make_param({.name = name, .global = {count}, .init = {}}, 0, 1);
  made.copies = copies;
  made.is_partial = is_partial;
  return made;
}

TEST(UnitPlaces, MatricesThatFollowLieWithoutAGap) {
  Param q = param("q", 100);
  Param kv = param("kv", 30);
  Param norm = param("norm", 10);
  kv.spec.follows = true;
  const UnitPlaces places({&norm, &q, &kv}, {});
  ASSERT_EQ(places.places().size(), 3u);
  EXPECT_EQ(places.places()[1].range.first, kNormBlock);
  EXPECT_EQ(places.places()[2].range.first, kNormBlock + 100);
  EXPECT_EQ(places.count(), 4 * kNormBlock);
}

TEST(UnitPlaces, ShardsAreEqualAndOfWholeBlocks) {
  Param a = param("a", 200);
  for (int rank = 0; rank < 3; ++rank) {
    const UnitPlaces places({&a}, {rank, 3});
    EXPECT_EQ(places.count(), 6 * kNormBlock);
    EXPECT_EQ(places.shard().first, rank * 2 * kNormBlock);
    EXPECT_EQ(places.shard().count, 2 * kNormBlock);
    EXPECT_EQ(places.places().back().padded.end(), places.count());
  }
}

TEST(UnitPlaces, PartialSumsOfTheSameRanksAreOne) {
  Param norm = param("norm", 10, 4, true);
  Param q = param("q", 100);
  Param kv = param("kv", 30, 2, true);
  Param bias = param("bias", 20, 4, true);
  kv.spec.follows = true;
  const UnitPlaces places({&norm, &q, &kv, &bias}, {});
  ASSERT_EQ(places.partial_sums().size(), 2u);
  EXPECT_EQ(places.places()[0].param, &q);
  EXPECT_EQ(places.partial_sums()[0].copies, 2);
  EXPECT_EQ(places.partial_sums()[0].range.first, 100);
  EXPECT_EQ(places.partial_sums()[1].copies, 4);
  EXPECT_EQ(places.partial_sums()[1].range.first, 3 * kNormBlock);
  EXPECT_EQ(places.partial_sums()[1].range.count, 2 * kNormBlock);
}

TEST(UnitRange, IntersectionOfRangesApartIsEmpty) {
  EXPECT_EQ(intersection({0, 5}, {7, 3}).count, 0);
  EXPECT_EQ(intersection({0, 5}, {3, 9}).first, 3);
  EXPECT_EQ(intersection({0, 5}, {3, 9}).count, 2);
}

}  // namespace
}  // namespace orthant
