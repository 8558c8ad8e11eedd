// What each tp rank holds of a parameter, and how many others hold the same.
#include "params/param.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace orthant {
namespace {

TEST(Param, WithoutASplitEveryRankHoldsAll) {
  const Param param = make_param({.name = "norm.weight", .global = {48}, .init = {}}, 2, 4);
  EXPECT_EQ(param.local, Shape({48}));
  EXPECT_EQ(param.copies, 4);
  EXPECT_FALSE(param.is_partial);
}

TEST(Param, ASplitPartIsHeldOnce) {
  const ParamSpec spec{.name = "w", .global = {8, 6}, .split_dim = 0, .init = {}};
  const Param param = make_param(spec, 3, 4);
  EXPECT_EQ(param.local, Shape({2, 6}));
  EXPECT_EQ(param.box.begin[0], 6);
  EXPECT_EQ(param.copies, 1);
  EXPECT_THROW(make_param(spec, 0, 3), Error);
  EXPECT_THROW(make_param(spec, 0, 16), Error);  // only heads repeat
}

TEST(Param, FewerKeyValueHeadsThanRanksAreHeldBySeveral) {
  const ParamSpec spec{.name = "h.0.attn.kv.weight",
                       .global = {2, 4, 5, 6},
                       .split_dim = 1,
                       .repeats = true,
                       .init = {}};
  for (const int tp : {2, 4, 8, 16}) {
    const int copies = std::max(1, tp / 4);
    for (int rank = 0; rank < tp; ++rank) {
      const Param param = make_param(spec, rank, tp);
      EXPECT_EQ(param.local, Shape({2, 4 * copies / tp, 5, 6}));
      EXPECT_EQ(param.copies, copies);
      EXPECT_EQ(param.is_partial, copies > 1);
      EXPECT_EQ(param.box.begin[1], 4 * rank / tp);
    }
  }
  EXPECT_THROW(make_param(spec, 0, 6), Error);
}

}  // namespace
}  // namespace orthant
