// What the sampler may choose, how often, and that it can be repeated.
#include "infer/sampler.h"

#include <cmath>
#include <limits>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "base/check.h"

namespace orthant::test {
namespace {

// exp of them is in proportion 1 : 2 : 4 : 8 : 1.
const std::vector<float> kLogits = {0, std::log(2.0F), std::log(4.0F), std::log(8.0F), 0};
constexpr int kDraws = 20000;

std::map<std::int32_t, double> shares(const SamplerConfig& config) {
  Sampler sampler(config);
  std::map<std::int32_t, double> counts;
  for (int position = 0; position < kDraws; ++position) {
    counts[sampler.pick(kLogits, 0, position)] += 1.0 / kDraws;
  }
  return counts;
}

void expect_shares(const SamplerConfig& config, const std::map<std::int32_t, double>& expected) {
  const auto found = shares(config);
  EXPECT_EQ(found.size(), expected.size());
  for (const auto& [id, share] : expected) {
    ASSERT_TRUE(found.contains(id)) << "token " << id;
    EXPECT_NEAR(found.at(id), share, 0.015) << "token " << id;  // 4 standard deviations
  }
}

TEST(Sampler, DrawsTokensByTheirProbability) {
  expect_shares({.temperature = 1},
                {{0, 1 / 16.0}, {1, 2 / 16.0}, {2, 4 / 16.0}, {3, 8 / 16.0}, {4, 1 / 16.0}});
}

TEST(Sampler, DividesLogitsByTheTemperature) {
  expect_shares({.temperature = 0.5},
                {{0, 1 / 86.0}, {1, 4 / 86.0}, {2, 16 / 86.0}, {3, 64 / 86.0}, {4, 1 / 86.0}});
}

TEST(Sampler, TakesTheMostLikelyAtTemperatureZero) {
  Sampler sampler({.temperature = 0, .seed = 7});
  EXPECT_EQ(sampler.pick(kLogits, 0, 0), 3);
  EXPECT_EQ(sampler.pick(std::vector<float>{1, 5, 5, 2}, 3, 9), 1);  // the lower of equals
  EXPECT_EQ(sampler.pick(std::vector<float>{-3}, 0, 0), 0);
}

TEST(Sampler, KeepsTheTopK) {
  expect_shares({.temperature = 1, .top_k = 2}, {{2, 4 / 12.0}, {3, 8 / 12.0}});
  expect_shares({.temperature = 1, .top_k = 4},  // of equals, the lower id
                {{0, 1 / 15.0}, {1, 2 / 15.0}, {2, 4 / 15.0}, {3, 8 / 15.0}});
  expect_shares({.temperature = 1, .top_k = 1}, {{3, 1}});
}

TEST(Sampler, TopKBeyondTheVocabularyKeepsAll) {
  Sampler all({.temperature = 1});
  Sampler many({.temperature = 1, .top_k = 99});
  for (int position = 0; position < 100; ++position) {
    EXPECT_EQ(all.pick(kLogits, 0, position), many.pick(kLogits, 0, position));
  }
}

TEST(Sampler, KeepsTheFewestThatReachTopP) {
  expect_shares({.temperature = 1, .top_p = 0.49}, {{3, 1}});
  expect_shares({.temperature = 1, .top_p = 0.51}, {{2, 4 / 12.0}, {3, 8 / 12.0}});
  expect_shares({.temperature = 1, .top_p = 0.8}, {{1, 2 / 14.0}, {2, 4 / 14.0}, {3, 8 / 14.0}});
}

TEST(Sampler, TopPIsAShareOfTheTopK) {
  // The two likeliest share 8/12 and 4/12.
  expect_shares({.temperature = 1, .top_k = 2, .top_p = 0.66}, {{3, 1}});
  expect_shares({.temperature = 1, .top_k = 2, .top_p = 0.67}, {{2, 4 / 12.0}, {3, 8 / 12.0}});
}

TEST(Sampler, IsAFunctionOfSeedSequenceAndPosition) {
  const std::vector<float> flat(1000, 0.0F);
  Sampler sampler({.temperature = 1, .seed = 5});
  Sampler again({.temperature = 1, .seed = 5});
  Sampler other({.temperature = 1, .seed = 6});
  int same_seed = 0;
  int same_sequence = 0;
  int same_position = 0;
  for (int position = 0; position < 100; ++position) {
    const std::int32_t token = sampler.pick(flat, 2, position);
    EXPECT_EQ(again.pick(flat, 2, position), token);
    same_seed += static_cast<int>(other.pick(flat, 2, position) == token);
    same_sequence += static_cast<int>(sampler.pick(flat, 3, position) == token);
    same_position += static_cast<int>(sampler.pick(flat, 2, position + 1) == token);
  }
  EXPECT_LT(same_seed, 5);
  EXPECT_LT(same_sequence, 5);
  EXPECT_LT(same_position, 5);
}

TEST(Sampler, StandsTemperaturesNearZero) {
  Sampler sampler({.temperature = 1e-300});
  for (int position = 0; position < 100; ++position) {
    EXPECT_EQ(sampler.pick(kLogits, 0, position), 3);
  }
}

std::string refusal(const SamplerConfig& config) {
  try {
    const Sampler sampler(config);
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kUser);
    return error.what();
  }
  return "";
}

TEST(Sampler, RefusesValuesOutOfRangeByName) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(refusal({.temperature = -1}).find("--temperature=-1"), std::string::npos);
  EXPECT_NE(refusal({.temperature = nan}).find("--temperature=nan"), std::string::npos);
  EXPECT_NE(refusal({.top_k = -2}).find("--top-k=-2"), std::string::npos);
  EXPECT_NE(refusal({.top_p = 0}).find("--top-p=0"), std::string::npos);
  EXPECT_NE(refusal({.top_p = 1.5}).find("--top-p=1.5"), std::string::npos);
  EXPECT_EQ(refusal({}), "");
}

TEST(Sampler, RefusesLogitsThatAreNotFinite) {
  Sampler sampler({});
  const std::vector<float> damaged = {0, std::numeric_limits<float>::quiet_NaN(), 1};
  EXPECT_THROW(sampler.pick(damaged, 0, 0), Error);
}

}  // namespace
}  // namespace orthant::test
