// Sample order: permutations, layouts that agree, splits by Megatron's rounding.
#include "data/batch_plan.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "data/indexed_dataset_writer.h"
#include "data/token_source.h"
#include "tests/data/files.h"

namespace orthant {
namespace {

std::vector<std::int64_t> shuffled(std::int64_t count, std::uint64_t seed, std::int64_t epoch) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    order[static_cast<std::size_t>(i)] = shuffled_index(i, count, seed, epoch);
  }
  return order;
}

// Tokens 0, 1, 2, ... in documents of the given lengths.
std::string write_counting(const Folder& folder, const std::string& name,
                           const std::vector<std::int64_t>& lengths, std::int32_t first = 0) {
  IndexedDatasetWriter writer(folder.path(name), 65536);
  for (const std::int64_t length : lengths) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(length));
    std::iota(tokens.begin(), tokens.end(), first);
    first += static_cast<std::int32_t>(length);
    writer.append(tokens);
    writer.end_document();
  }
  writer.commit();
  return folder.path(name);
}

std::int32_t first_token(const TokenSource& source, std::int64_t position) {
  std::vector<std::int32_t> sample(static_cast<std::size_t>(source.seq_length() + 1));
  source.copy_sample(position, sample);
  for (std::size_t i = 1; i < sample.size(); ++i) {
    EXPECT_EQ(sample[i], sample[0] + static_cast<std::int32_t>(i));
  }
  return sample[0];
}

TEST(BatchPlan, ShuffleIsABijectionForEverySize) {
  for (std::int64_t count = 1; count <= 300; ++count) {
    std::vector<std::int64_t> order = shuffled(count, 7, count % 3);
    std::sort(order.begin(), order.end());
    for (std::int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(order[static_cast<std::size_t>(i)], i) << count;
    }
  }
  for (const std::int64_t count : {1023, 1024, 1025, 65537, 100003}) {
    const std::vector<std::int64_t> order = shuffled(count, 1, 0);
    const std::set<std::int64_t> seen(order.begin(), order.end());
    EXPECT_EQ(static_cast<std::int64_t>(seen.size()), count);
    EXPECT_EQ(*seen.begin(), 0);
    EXPECT_EQ(*seen.rbegin(), count - 1);
  }
}

TEST(BatchPlan, ShuffleDependsOnSeedAndEpochOnly) {
  EXPECT_EQ(shuffled(100, 3, 1), shuffled(100, 3, 1));
  EXPECT_NE(shuffled(100, 3, 1), shuffled(100, 4, 1));
  EXPECT_NE(shuffled(100, 3, 1), shuffled(100, 3, 2));
  // A change of these numbers changes the data of every run that is resumed.
  EXPECT_EQ(shuffled(10, 1234, 0), (std::vector<std::int64_t>{7, 1, 3, 6, 5, 2, 4, 9, 8, 0}));
}

TEST(BatchPlan, ShuffleLooksLikeChance) {
  constexpr std::int64_t kCount = 10000;
  const std::vector<std::int64_t> order = shuffled(kCount, 5, 0);
  double sum = 0;
  int num_fixed = 0;
  int num_neighbours = 0;
  for (std::int64_t i = 0; i < kCount; ++i) {
    const auto at = static_cast<std::size_t>(i);
    sum += (static_cast<double>(i) - 5000) * (static_cast<double>(order[at]) - 5000);
    if (order[at] == i) ++num_fixed;
    if (i > 0 && std::abs(order[at] - order[at - 1]) == 1) ++num_neighbours;
  }
  EXPECT_LT(std::abs(sum / (kCount * 8.33e6)), 0.05);  // correlation; 0.01 by chance
  EXPECT_LT(num_fixed, 8);                             // 1 by chance
  EXPECT_LT(num_neighbours, 12);                       // 2 by chance
}

TEST(BatchPlan, EveryLayoutReadsTheSamePositions) {
  for (const std::int64_t dp : {1, 2, 4}) {
    for (const std::int64_t micro_batch : {1, 2, 3}) {
      std::vector<std::int64_t> positions;
      for (std::int64_t rank = 0; rank < dp; ++rank) {
        const BatchGeometry geometry = {24, micro_batch, dp, rank, 8};
        check_geometry(geometry);
        for (std::int64_t micro = 0; micro < geometry.num_micros(); ++micro) {
          for (std::int64_t row = 0; row < micro_batch; ++row) {
            positions.push_back(sample_position(geometry, 5, micro, row));
          }
        }
      }
      std::sort(positions.begin(), positions.end());
      ASSERT_EQ(positions.size(), 24u);
      for (std::size_t i = 0; i < 24; ++i) {
        EXPECT_EQ(positions[i], static_cast<std::int64_t>(5 * 24 + i));
      }
    }
  }
  const BatchGeometry example = {16, 2, 2, 1, 8};
  EXPECT_EQ(sample_position(example, 3, 2, 1), 3 * 16 + (2 * 2 + 1) * 2 + 1);
}

TEST(BatchPlan, GeometryThatDoesNotDivideIsRefused) {
  EXPECT_ERROR(check_geometry({10, 4, 2, 0, 8}), "use 8 or 16");
  EXPECT_ERROR(check_geometry({0, 1, 1, 0, 8}), "at least 1");
  EXPECT_ERROR(parse_order("shufled"), "did you mean shuffled");
}

TEST(TokenSource, SequentialSamplesOverlapByOneAndWrap) {
  const Folder folder;
  const TokenSource source({{write_counting(folder, "d", {7, 0, 10, 4})}, {4}});
  EXPECT_EQ(source.num_samples(), 5);  // (21 - 1) / 4
  for (std::int64_t k = 0; k < 12; ++k) {
    EXPECT_EQ(first_token(source, k), 4 * (k % 5));
  }
}

TEST(TokenSource, ShuffledEpochsArePermutationsOfTheSamples) {
  const Folder folder;
  const TokenSource source({{write_counting(folder, "d", {401})}, {4, OrderKind::kShuffled, 9}});
  std::vector<std::vector<std::int32_t>> epochs(2);
  for (std::int64_t k = 0; k < 200; ++k) {
    epochs[static_cast<std::size_t>(k / 100)].push_back(first_token(source, k));
  }
  EXPECT_NE(epochs[0], epochs[1]);
  for (auto& epoch : epochs) {
    std::sort(epoch.begin(), epoch.end());
    for (std::size_t i = 0; i < 100; ++i) {
      EXPECT_EQ(epoch[i], static_cast<std::int32_t>(4 * i));
    }
  }
}

TEST(TokenSource, SeveralPrefixesAreOneAfterAnother) {
  const Folder folder;
  const std::string a = write_counting(folder, "a", {11});
  const std::string tiny = write_counting(folder, "tiny", {3});
  const std::string b = write_counting(folder, "b", {9}, 1000);
  const TokenSource source({{a, tiny, b}, {4}});
  EXPECT_EQ(source.num_samples(), 4);
  EXPECT_EQ(first_token(source, 1), 4);
  EXPECT_EQ(first_token(source, 2), 1000);
  EXPECT_EQ(first_token(source, 3), 1004);
}

TEST(TokenSource, SplitIsBetweenSequencesAsMegatronDoes) {
  const Folder folder;
  const std::string prefix = write_counting(folder, "d", std::vector<std::int64_t>(10, 9));
  const auto part = [&](const char* text, SplitPart which) {
    return TokenSource({{prefix}, {4, OrderKind::kSequential, 0, parse_split(text), which}});
  };
  const TokenSource train = part("8,1,1", SplitPart::kTrain);
  EXPECT_EQ(train.num_samples(), 17);  // (72 - 1) / 4
  EXPECT_EQ(first_token(train, 0), 0);
  EXPECT_EQ(first_token(part("8,1,1", SplitPart::kValid), 0), 72);
  EXPECT_EQ(part("8,1,1", SplitPart::kValid).num_samples(), 2);
  EXPECT_EQ(first_token(part("8,1,1", SplitPart::kTest), 0), 81);
  // Bounds at 2.5 and 7.5 go to the even neighbour.
  EXPECT_EQ(first_token(part("1,2,1", SplitPart::kValid), 0), 18);
  EXPECT_EQ(first_token(part("1,2,1", SplitPart::kTest), 0), 72);
}

TEST(TokenSource, TooFewSequencesAreSplitBetweenSamples) {
  const Folder folder;
  const std::string prefix = write_counting(folder, "d", {401});
  const auto part = [&](const char* text, SplitPart which) {
    return TokenSource({{prefix}, {4, OrderKind::kSequential, 0, parse_split(text), which}});
  };
  EXPECT_EQ(part("90,10", SplitPart::kTrain).num_samples(), 90);
  const TokenSource valid = part("90,10", SplitPart::kValid);
  EXPECT_EQ(valid.num_samples(), 10);
  EXPECT_EQ(first_token(valid, 0), 360);
  EXPECT_EQ(first_token(valid, 9), 396);
  EXPECT_ERROR(part("90,10", SplitPart::kTest), "the test part of");
  EXPECT_ERROR(part("1000,1", SplitPart::kValid), "the valid part of");
}

TEST(TokenSource, BadSplitsAndTooLittleDataAreRefused) {
  const Folder folder;
  EXPECT_ERROR(parse_split("a,b"), "data.split=\"a,b\"");
  EXPECT_ERROR(parse_split("0,0,0"), "data.split");
  EXPECT_ERROR(parse_split("1,-1,0"), "data.split");
  EXPECT_ERROR(parse_split("1,1,1,1"), "data.split");
  const std::string prefix = write_counting(folder, "d", {4});
  EXPECT_ERROR(TokenSource({{prefix}, {4}}),
               "(4 tokens in all) has no sample of train.seq_length + 1 = 5");
  EXPECT_ERROR(TokenSource({{}, {4}}), "no dataset is given");
}

TEST(TokenSource, IdsOutsideTheVocabularyAreFound) {
  const Folder folder;
  const TokenSource source({{write_counting(folder, "d", {5000, 100})}, {4}});
  check_vocab(source, 5100);
  EXPECT_ERROR(check_vocab(source, 5099), "d has token id 5099, the model's vocabulary is 5099");
}

}  // namespace
}  // namespace orthant
