// Blends by arithmetic: exact shares, even spread, and no sample lost or repeated when weights
// change.
#include "data/blend.h"

#include <cmath>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "data/indexed_dataset_writer.h"
#include "data/token_source.h"
#include "tests/data/files.h"

namespace orthant {
namespace {

// `samples` samples of 4 + 1 tokens; every token is `value`.
std::string write_flat(const Folder& folder, const std::string& name, std::int32_t value,
                       std::int64_t samples) {
  IndexedDatasetWriter writer(folder.path(name), 65536);
  const std::vector<std::int32_t> document(static_cast<std::size_t>(4 * samples + 1), value);
  writer.append(document);
  writer.end_document();
  writer.commit();
  return folder.path(name);
}

TEST(Blend, HasExactSharesSpreadEvenly) {
  const std::vector<double> weights = {5, 3, 2};
  const Blend blend(weights);
  std::vector<std::int64_t> counts(3);
  for (std::int64_t position = 0; position < 2 * Blend::kCycle; ++position) {
    const Blend::Place place = blend.at(position);
    EXPECT_EQ(place.index, counts[static_cast<std::size_t>(place.source)]);
    ++counts[static_cast<std::size_t>(place.source)];
    for (std::size_t i = 0; i < 3; ++i) {
      ASSERT_LT(std::abs(static_cast<double>(counts[i]) -
                         weights[i] / 10 * static_cast<double>(position + 1)),
                1.5)
          << position;
    }
  }
  EXPECT_EQ(counts, blend.counts(2 * Blend::kCycle));
  EXPECT_EQ(blend.counts(2 * Blend::kCycle), (std::vector<std::int64_t>{65536, 39322, 26214}));
}

TEST(Blend, CountsAreThoseOfThePlaces) {
  const Blend blend(std::vector<double>{0.7, 0, 1e-9, 2.1});
  std::vector<std::int64_t> counts(4);
  for (std::int64_t position = 0; position < Blend::kCycle + 77; ++position) {
    if (position % 1000 == 7) {
      ASSERT_EQ(blend.counts(position), counts);
    }
    ++counts[static_cast<std::size_t>(blend.at(position).source)];
  }
  EXPECT_EQ(counts[1], 0);
  EXPECT_GE(counts[2], 1);  // a weight that is not 0 has a place
}

TEST(Blend, TakesManyDatasets) {
  const std::vector<double> weights(3000, 1.0);
  const Blend blend(weights);
  const std::vector<std::int64_t> counts = blend.counts(Blend::kCycle);
  for (const std::int64_t count : counts) {
    EXPECT_TRUE(count == 21 || count == 22);
  }
}

class Blends : public testing::Test {
 protected:
  TokenSource source(const std::vector<BlendEra>& eras,
                     OrderKind kind = OrderKind::kShuffled) const {
    return TokenSource({{a_, b_}, {.seq_length = 4, .kind = kind, .seed = 3, .eras = eras}});
  }
  BlendEra era(std::int64_t position, double a, double b) const {
    return {.first_position = position, .weights = {{a_, a}, {b_, b}}};
  }
  // Of each sample: dataset, first token.
  static std::vector<std::pair<int, std::int64_t>> drawn(const TokenSource& source,
                                                         std::int64_t from, std::int64_t to) {
    std::vector<std::pair<int, std::int64_t>> samples;
    for (std::int64_t position = from; position < to; ++position) {
      source.order().visit_runs(position, [&](const TokenRun& run) {
        samples.emplace_back(run.dataset, run.first_token);
      });
    }
    return samples;
  }

  Folder folder_;
  std::string a_ = write_flat(folder_, "a", 1, 50);
  std::string b_ = write_flat(folder_, "b", 2, 1000);
};

TEST_F(Blends, EpochsOfADatasetHaveEachSampleOnce) {
  const TokenSource blend = source({era(0, 1, 3)});
  std::map<std::int64_t, int> times;
  for (const auto& [dataset, token] : drawn(blend, 0, 400)) {
    if (dataset == 0) ++times[token];
  }
  EXPECT_EQ(times.size(), 50u);  // 100 draws are two epochs of 50
  for (const auto& [token, count] : times) {
    EXPECT_EQ(count, 2) << token;
  }
  EXPECT_EQ(blend.order().samples_by_dataset(400), (std::vector<std::int64_t>{100, 300}));
  std::vector<std::int32_t> tokens(5);
  blend.copy_sample(0, tokens);
  EXPECT_EQ(tokens, std::vector<std::int32_t>(5, tokens[0]));
}

TEST_F(Blends, NewWeightsGoOnBehindTheLastSampleOfEachDataset) {
  const TokenSource before = source({era(0, 1, 3)});
  const TokenSource after = source({era(0, 1, 3), era(120, 2, 1)});
  EXPECT_EQ(drawn(before, 0, 120), drawn(after, 0, 120));
  EXPECT_NE(drawn(before, 120, 200), drawn(after, 120, 200));
  std::set<std::int64_t> seen;
  std::size_t of_b = 0;
  for (const auto& [dataset, token] : drawn(after, 0, 600)) {
    if (dataset == 0) continue;
    seen.insert(token);
    ++of_b;
  }
  EXPECT_EQ(seen.size(), of_b);  // less than an epoch: none twice
  EXPECT_EQ(after.order().samples_by_dataset(600), (std::vector<std::int64_t>{30 + 320, 90 + 160}));
}

TEST_F(Blends, ADatasetThatComesLaterBeginsAtItsFirstSample) {
  const BlendEra alone = {.first_position = 0, .weights = {{a_, 1}}};
  const TokenSource both = source({alone, era(10, 1, 1)}, OrderKind::kSequential);
  EXPECT_EQ(both.order().samples_by_dataset(10), (std::vector<std::int64_t>{10, 0}));
  const auto samples = drawn(both, 10, 14);
  EXPECT_EQ(samples[0], (std::pair<int, std::int64_t>{0, 40}));
  EXPECT_EQ(samples[1], (std::pair<int, std::int64_t>{1, 0}));
  EXPECT_EQ(samples[3], (std::pair<int, std::int64_t>{1, 4}));
}

TEST_F(Blends, ADatasetThatWentIsMissedOnlyWhereItWasRead) {
  const BlendEra gone = {.first_position = 0, .weights = {{"gone", 1}, {a_, 1}}};
  const TokenSource now = source({gone, era(10, 1, 1)});
  EXPECT_EQ(drawn(now, 10, 12).size(), 2u);
  EXPECT_ERROR(drawn(now, 0, 10), "a dataset that data.train does not name now");
}

TEST_F(Blends, ADatasetWithoutASampleIsRefused) {
  const std::string tiny = write_flat(folder_, "tiny", 3, 0);
  const OrderConfig order = {.seq_length = 4,
                             .seed = 1,
                             .eras = {{.first_position = 0, .weights = {{a_, 1}, {tiny, 0.5}}}}};
  EXPECT_ERROR(TokenSource({{a_, tiny}, order}), "has weight 0.5 but not one sample of 5 tokens");
}

}  // namespace
}  // namespace orthant
