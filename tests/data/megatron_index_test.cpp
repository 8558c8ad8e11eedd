// Megatron's indices against vectors computed with its own functions.
#include "data/megatron_index.h"

#include <numeric>

#include <gtest/gtest.h>

#include "data/indexed_dataset_writer.h"
#include "data/token_source.h"
#include "tests/data/files.h"

namespace orthant {
namespace {

struct Vector {
  std::vector<std::int32_t> lengths;
  std::int64_t seq_length;
  std::int64_t num_samples;
  std::uint32_t seed;
  std::vector<std::int32_t> documents;
  std::vector<MegatronRow> rows;
  std::vector<std::int64_t> shuffle;
};

const std::vector<std::int32_t> kFive = {3, 5, 2, 7, 4};

std::vector<Vector> vectors() {
  return {
      {kFive,
       4,
       5,
       1234,
       {4, 0, 1, 2, 3},
       {{0, 0}, {1, 0}, {2, 1}, {3, 0}, {4, 2}, {4, 6}},
       {3, 2, 1, 0, 4}},
      {kFive,
       4,
       12,
       1234,
       {2, 2, 4, 1, 0, 3, 4, 0, 1, 3, 0, 4, 3, 2, 1},
       {{0, 0},
        {2, 0},
        {3, 0},
        {3, 4},
        {5, 0},
        {5, 4},
        {6, 1},
        {7, 1},
        {8, 2},
        {9, 1},
        {9, 5},
        {10, 2},
        {11, 3},
        {12, 3},
        {13, 0},
        {14, 2}},
       {3, 9, 2, 1, 7, 5, 4, 0, 8, 6, 14, 11, 13, 10, 12}},
      {kFive,
       4,
       7,
       1234,
       {4, 0, 1, 2, 3, 3, 2, 1, 0, 4},
       {{0, 0}, {1, 0}, {2, 1}, {3, 0}, {4, 2}, {4, 6}, {5, 3}, {6, 0}, {7, 2}, {8, 1}, {9, 2}},
       {2, 0, 4, 3, 1, 6, 9, 5, 7, 8}},
      {std::vector<std::int32_t>(10, 6),
       4,
       17,
       42,
       {8, 1, 5, 0, 7, 2, 9, 4, 3, 6, 0, 1, 8, 5, 3, 4, 7, 9, 6, 2},
       {{0, 0},  {0, 4},  {1, 2},  {2, 0},  {2, 4},  {3, 2},  {4, 0},  {4, 4},  {5, 2},  {6, 0},
        {6, 4},  {7, 2},  {8, 0},  {8, 4},  {9, 2},  {10, 0}, {10, 4}, {11, 2}, {12, 0}, {12, 4},
        {13, 2}, {14, 0}, {14, 4}, {15, 2}, {16, 0}, {16, 4}, {17, 2}, {18, 0}, {18, 4}, {19, 2}},
       {10, 2,  11, 6,  8,  9,  3,  0,  13, 12, 5,  7,  1,  4, 15,
        26, 22, 19, 18, 27, 14, 21, 17, 20, 16, 25, 23, 28, 24}},
  };
}

TEST(MegatronIndex, IsMegatronsNumberForNumber) {
  for (const Vector& vector : vectors()) {
    const MegatronIndex index = megatron_index({.lengths = vector.lengths,
                                                .seq_length = vector.seq_length,
                                                .num_samples = vector.num_samples,
                                                .seed = vector.seed});
    EXPECT_EQ(index.documents, vector.documents);
    EXPECT_EQ(index.rows, vector.rows);
    EXPECT_EQ(index.shuffle, vector.shuffle);
  }
}

// numpy.random.RandomState(1234).shuffle(arange(10)).
TEST(MegatronIndex, DrawsNumpysNumbers) {
  const std::vector<std::int32_t> ten(10, 6);
  const MegatronIndex index =
      megatron_index({.lengths = ten, .seq_length = 4, .num_samples = std::nullopt, .seed = 1234});
  EXPECT_EQ(index.documents, (std::vector<std::int32_t>{7, 2, 9, 1, 0, 8, 4, 5, 6, 3}));
}

TEST(MegatronIndex, BlendsGoToTheDatasetThatWantsMost) {
  const std::vector<double> weights = {.5, .3, .2};
  const MegatronBlend blend = megatron_blend(weights, 12);
  EXPECT_EQ(blend.dataset, (std::vector<std::int32_t>{0, 1, 2, 0, 1, 0, 2, 0, 1, 0, 0, 1}));
  EXPECT_EQ(blend.sample, (std::vector<std::int64_t>{0, 0, 0, 1, 1, 2, 1, 3, 2, 4, 5, 3}));
}

TEST(MegatronIndex, BlendOfAllReadsEachSampleOnce) {
  const std::vector<std::int64_t> sizes = {3, 9, 1};
  const MegatronBlend blend = megatron_blend_of_all(sizes);
  std::vector<std::int64_t> counts(3);
  for (std::size_t i = 0; i < blend.dataset.size(); ++i) {
    EXPECT_EQ(blend.sample[i], counts[static_cast<std::size_t>(blend.dataset[i])]++);
  }
  EXPECT_EQ(counts, sizes);
}

TEST(MegatronIndex, SharesHaveMegatronsSurplus) {
  EXPECT_EQ(megatron_share(0.5, 1000), 503);  // ceil(500 * 1.005)
  EXPECT_EQ(megatron_share(0.3, 10), 4);      // 0.3 * 10 is not above 3
}

// Tokens of document d are 100 d, 100 d + 1, ...
std::string write_documents(const Folder& folder, const std::string& name,
                            const std::vector<std::int32_t>& lengths) {
  IndexedDatasetWriter writer(folder.path(name), 65536);
  for (std::size_t d = 0; d < lengths.size(); ++d) {
    std::vector<std::int32_t> document(static_cast<std::size_t>(lengths[d]));
    std::iota(document.begin(), document.end(), static_cast<std::int32_t>(100 * d));
    writer.append(document);
    writer.end_document();
  }
  writer.commit();
  return folder.path(name);
}

TEST(MegatronOrder, JoinsDocumentsInTheOrderOfItsIndex) {
  const Folder folder;
  const TokenSource source(
      {{write_documents(folder, "d", kFive)},
       {.seq_length = 4, .kind = OrderKind::kMegatron, .seed = 1234, .num_samples = 5}});
  const std::vector<std::vector<std::int32_t>> expected = {
      {200, 201, 300, 301, 302},  // position 0 is sample 3: from (3,0) to (4,2)
      {101, 102, 103, 104, 200}, {0, 1, 2, 100, 101},
      {400, 401, 402, 403, 0},   {302, 303, 304, 305, 306},
  };
  ASSERT_EQ(source.num_samples(), 5);
  for (std::size_t k = 0; k < expected.size(); ++k) {
    std::vector<std::int32_t> tokens(5);
    source.copy_sample(static_cast<std::int64_t>(k), tokens);
    EXPECT_EQ(tokens, expected[k]) << k;
  }
}

TEST(MegatronOrder, BlendsAndCountsSamples) {
  const Folder folder;
  const std::string a = write_documents(folder, "a", kFive);
  const std::string b = write_documents(folder, "b", {60});
  const OrderConfig order = {.seq_length = 4,
                             .kind = OrderKind::kMegatron,
                             .seed = 1234,
                             .eras = {{.first_position = 0, .weights = {{a, 1}, {b, 3}}}},
                             .num_samples = 40};
  const TokenSource source({{a, b}, order});
  EXPECT_EQ(source.num_samples(), 40);
  std::vector<std::int64_t> counts(2);
  for (std::int64_t position = 0; position < 40; ++position) {
    EXPECT_EQ(source.order().samples_by_dataset(position), counts);
    std::int64_t tokens = 0;
    int dataset = 0;
    source.order().visit_runs(position, [&](const TokenRun& run) {
      tokens += run.count;
      dataset = run.dataset;
    });
    EXPECT_EQ(tokens, 5);
    ++counts[static_cast<std::size_t>(dataset)];
  }
  EXPECT_EQ(counts, (std::vector<std::int64_t>{10, 30}));
}

TEST(MegatronOrder, WithoutWeightsEveryDatasetIsReadOnce) {
  const Folder folder;
  OrderConfig order = {.seq_length = 4, .kind = OrderKind::kMegatron, .seed = 1, .num_samples = 10};
  const std::vector<std::string> prefixes = {write_documents(folder, "a", kFive),
                                             write_documents(folder, "b", {21})};
  EXPECT_EQ(TokenSource({prefixes, order}).num_samples(), 10);
  order.num_samples = 11;
  EXPECT_ERROR(TokenSource({prefixes, order}), "reads 2 datasets once, 10 samples, but");
}

TEST(MegatronOrder, ASplitWithTooFewTokensIsRefused) {
  const Folder folder;
  const OrderConfig order = {.seq_length = 4,
                             .kind = OrderKind::kMegatron,
                             .split = parse_split("9,1,0"),
                             .part = SplitPart::kValid,
                             .num_samples = 1};
  EXPECT_ERROR(TokenSource({{write_documents(folder, "d", {30})}, order}),
               "cuts between documents");
}

}  // namespace
}  // namespace orthant
