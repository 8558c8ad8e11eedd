// Documents in samples: where each begins, how many tokens predict within one, in every order, and
// what a loader says of a whole micro-batch.
#include <numeric>

#include <gtest/gtest.h>

#include "data/indexed_dataset_writer.h"
#include "data/loader.h"
#include "tests/data/files.h"

namespace orthant {
namespace {

using Places = std::vector<std::int32_t>;

// Documents of sequences of the given lengths; tokens count from 0.
std::string write(const Folder& folder, const std::string& name,
                  const std::vector<std::vector<std::int64_t>>& documents) {
  IndexedDatasetWriter writer(folder.path(name), 65536);
  std::int32_t next = 0;
  for (const std::vector<std::int64_t>& sequences : documents) {
    for (const std::int64_t length : sequences) {
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(length));
      std::iota(tokens.begin(), tokens.end(), next);
      next += static_cast<std::int32_t>(length);
      writer.append(tokens);
      writer.end_sequence();
    }
    writer.end_document();
  }
  writer.commit();
  return folder.path(name);
}

Places places(const TokenSource& source, std::int64_t position) {
  Places result(static_cast<std::size_t>(source.seq_length() + 1));
  source.copy_places(position, result);
  return result;
}

TEST(SampleDocuments, BeginAtTheirFirstTokenAndWhereTheSampleDoes) {
  const Folder folder;
  const TokenSource source(
      {{write(folder, "d", {{3}, {}, {1}, {2, 7}, {30}})}, {6, OrderKind::kSequential}});
  EXPECT_EQ(places(source, 0), (Places{0, 1, 2, 0, 0, 1, 2}));
  EXPECT_EQ(source.num_targets(0), 4);
  EXPECT_EQ(source.num_documents(0), 3);
  // The document that goes on from the sample before begins again; the next begins with the label.
  EXPECT_EQ(places(source, 1), (Places{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(places(source, 2), (Places{0, 0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(source.num_targets(2), 5);
  EXPECT_EQ(places(source, 3), (Places{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(source.num_targets(3), 6);
  EXPECT_EQ(source.num_documents(3), 1);
}

TEST(SampleDocuments, TheLabelAloneIsNoDocumentOfTheSequence) {
  const Folder folder;
  const TokenSource source({{write(folder, "d", {{6}, {20}})}, {6, OrderKind::kSequential}});
  EXPECT_EQ(places(source, 0), (Places{0, 1, 2, 3, 4, 5, 0}));
  EXPECT_EQ(source.num_targets(0), 5);
  EXPECT_EQ(source.num_documents(0), 1);
}

// In Megatron's order a sequence is what others call a document; one that comes twice, in two
// epochs, is not the same text going on.
TEST(SampleDocuments, AreThoseOfMegatronsOrder) {
  const Folder folder;
  OrderConfig order{.seq_length = 10, .kind = OrderKind::kMegatron, .seed = 3};
  order.num_samples = 40;
  const TokenSource source({{write(folder, "d", {{4}, {9}, {2}, {5}})}, order});
  std::vector<std::int32_t> tokens(11);
  for (std::int64_t position = 0; position < 40; ++position) {
    source.copy_sample(position, tokens);
    const Places found = places(source, position);
    const auto begins = [](std::int32_t token) {
      return token == 0 || token == 4 || token == 13 || token == 15;
    };
    std::int64_t targets = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const bool is_new = i == 0 || begins(tokens[i]);
      EXPECT_EQ(found[i], is_new ? 0 : found[i - 1] + 1) << position << ' ' << i;
      if (i > 0 && !is_new) ++targets;
    }
    EXPECT_EQ(source.num_targets(position), targets);
  }
}

// Of one rank's batch, whose places must be those of its samples.
std::int64_t targets_here(const TokenSource& source, const BatchGeometry& geometry,
                          const Batch& batch) {
  std::int64_t targets = 0;
  for (std::int64_t micro = 0; micro < batch.num_micros; ++micro) {
    Places expected;
    for (std::int64_t row = 0; row < geometry.micro_batch; ++row) {
      const Places of_row = places(source, sample_position(geometry, batch.step, micro, row));
      expected.insert(expected.end(), of_row.begin(), of_row.end());
    }
    const auto found = batch.micro_places(micro);
    EXPECT_TRUE(std::equal(found.begin(), found.end(), expected.begin(), expected.end()));
    targets += std::count_if(found.begin(), found.end(), [](int at) { return at > 0; });
  }
  return targets;
}

TEST(SampleDocuments, ALoaderCountsTheTargetsOfAllDpRanks) {
  const Folder folder;
  const TokenSource source({{write(folder, "d", {{3}, {1}, {9}, {30}, {2}, {2}, {80}, {200}})},
                            {6, OrderKind::kShuffled, 5}});
  for (const std::int64_t dp : {1, 2}) {
    std::vector<std::vector<std::int64_t>> said(static_cast<std::size_t>(dp));  // by rank
    std::vector<std::int64_t> sums(3);                                          // of all ranks
    for (std::int64_t rank = 0; rank < dp; ++rank) {
      BatchGeometry geometry = {8, 2, dp, rank, 6};
      geometry.by_document = true;
      Loader loader(source, geometry, 0);
      for (std::int64_t& sum : sums) {
        const Batch batch = loader.next();
        ASSERT_EQ(batch.targets.size(), static_cast<std::size_t>(8 / (2 * dp)));
        sum += targets_here(source, geometry, batch);
        said[static_cast<std::size_t>(rank)].push_back(
            std::accumulate(batch.targets.begin(), batch.targets.end(), std::int64_t{0}));
      }
    }
    for (const std::vector<std::int64_t>& of_rank : said) {
      EXPECT_EQ(of_rank, sums);
    }
  }
}

}  // namespace
}  // namespace orthant
