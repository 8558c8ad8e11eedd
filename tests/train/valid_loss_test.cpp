#include "train/valid_loss.h"

#include <cmath>

#include <gtest/gtest.h>

namespace orthant {
namespace {

TEST(ValidLoss, OfOneSourceIsItsOwnToTheBit) {
  const EvalResult whole = whole_of({{.prefix = "a", .loss = 0.1, .tokens = 3}});
  EXPECT_EQ(whole.loss, 0.1);  // 0.1 * 3 / 3 is not
  EXPECT_EQ(whole.tokens, 3);
  ASSERT_EQ(whole.sources.size(), 1U);
  EXPECT_EQ(whole.sources[0].prefix, "a");
}

TEST(ValidLoss, OfSeveralIsTheMeanOverTheirTokens) {
  const EvalResult whole = whole_of(
      {{.prefix = "a", .loss = 1, .tokens = 30}, {.prefix = "b", .loss = 3, .tokens = 10}});
  EXPECT_EQ(whole.loss, 1.5);
  EXPECT_EQ(whole.tokens, 40);
  EXPECT_EQ(whole.sources[1].loss, 3);
}

TEST(ValidLoss, OfNoTokenIsNoNumber) {
  const EvalResult none =
      whole_of({{.prefix = "a", .loss = 0, .tokens = 0}, {.prefix = "b", .loss = 0, .tokens = 0}});
  EXPECT_TRUE(std::isnan(none.loss));
  EXPECT_TRUE(std::isnan(perplexity(none.loss)));
  EXPECT_TRUE(std::isnan(whole_of({{.prefix = "a", .loss = 0, .tokens = 0}}).loss));
  const EvalResult some =
      whole_of({{.prefix = "a", .loss = 0, .tokens = 0}, {.prefix = "b", .loss = 2, .tokens = 5}});
  EXPECT_EQ(some.loss, 2);
  EXPECT_TRUE(std::isnan(some.sources[0].loss));
}

}  // namespace
}  // namespace orthant
