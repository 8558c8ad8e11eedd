// The loader: its batches are what the plan says, for every layout, start and failure.
#include "data/loader.h"

#include <map>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "data/indexed_dataset_writer.h"
#include "tests/data/files.h"

namespace orthant {
namespace {

constexpr std::int64_t kSeqLength = 6;

std::string write_counting(const Folder& folder, std::int32_t count) {
  IndexedDatasetWriter writer(folder.path("d"), 65536);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 0);
  writer.append(tokens);
  writer.end_document();
  writer.commit();
  return folder.path("d");
}

class LoaderOnDisk : public testing::Test {
 protected:
  Folder folder_;
  TokenSource source_{{{write_counting(folder_, 601)}, {kSeqLength, OrderKind::kShuffled, 11}}};
};

TEST_F(LoaderOnDisk, BatchesAreTheSamplesOfTheirPositions) {
  const BatchGeometry geometry = {12, 2, 2, 1, kSeqLength};
  Loader loader(source_, geometry, 0);
  std::vector<std::int32_t> sample(kSeqLength + 1);
  for (std::int64_t step = 0; step < 20; ++step) {
    const Batch batch = loader.next();
    ASSERT_EQ(batch.step, step);
    ASSERT_EQ(batch.num_micros, 3);
    for (std::int64_t micro = 0; micro < 3; ++micro) {
      const auto tokens = batch.micro_tokens(micro);
      ASSERT_EQ(tokens.size(), 2u * (kSeqLength + 1));
      for (std::int64_t row = 0; row < 2; ++row) {
        const std::int64_t position = sample_position(geometry, step, micro, row);
        EXPECT_EQ(batch.micro_positions(micro)[static_cast<std::size_t>(row)], position);
        source_.copy_sample(position, sample);
        EXPECT_TRUE(
            std::equal(sample.begin(), sample.end(), tokens.begin() + row * (kSeqLength + 1)));
      }
    }
  }
}

TEST_F(LoaderOnDisk, LayoutsReadTheSameSamplesAndAResumeContinues) {
  std::map<std::int64_t, std::vector<std::int32_t>> expected;
  for (const std::int64_t first_step : {0, 7}) {
    for (const std::int64_t dp : {1, 2, 4}) {
      std::map<std::int64_t, std::vector<std::int32_t>> seen;
      for (std::int64_t rank = 0; rank < dp; ++rank) {
        Loader loader(source_, {8, 2, dp, rank, kSeqLength}, first_step);
        for (std::int64_t step = first_step; step < 10; ++step) {
          const Batch batch = loader.next();
          for (std::size_t row = 0; row < batch.positions.size(); ++row) {
            const auto sample = batch.tokens.subspan(row * (kSeqLength + 1), kSeqLength + 1);
            if (step >= 7) seen[batch.positions[row]].assign(sample.begin(), sample.end());
          }
        }
      }
      if (expected.empty()) expected = seen;
      EXPECT_EQ(seen.size(), 24u);
      EXPECT_EQ(seen, expected);
    }
  }
}

TEST_F(LoaderOnDisk, OriginShiftsPositions) {
  const BatchGeometry geometry = {8, 2, 1, 0, kSeqLength, -20};
  Loader loader(source_, geometry, 5);
  EXPECT_EQ(loader.next().positions[0], 20);
  EXPECT_EQ(loader.next().positions[0], 28);
}

TEST_F(LoaderOnDisk, ABatchStaysValidUntilTheFollowingNext) {
  Loader loader(source_, {8, 2, 1, 0, kSeqLength}, 0);
  for (int step = 0; step < 50; ++step) {
    const Batch batch = loader.next();
    const std::vector<std::int32_t> copy(batch.tokens.begin(), batch.tokens.end());
    std::this_thread::yield();
    EXPECT_TRUE(std::equal(copy.begin(), copy.end(), batch.tokens.begin()));
  }
}

TEST_F(LoaderOnDisk, WrongGeometryIsRefusedAndEndingEarlyIsFine) {
  EXPECT_ERROR(Loader(source_, {7, 2, 1, 0, kSeqLength}, 0), "not a multiple");
  EXPECT_ERROR(Loader(source_, {8, 2, 1, 0, kSeqLength + 1}, 0), "seq_length");
  for (int i = 0; i < 50; ++i) {
    const Loader loader(source_, {8, 2, 1, 0, kSeqLength}, i);
  }
}

TEST_F(LoaderOnDisk, AFailureInTheThreadIsThrownByNext) {
  Loader loader(source_, {8, 2, 1, 0, kSeqLength, -100}, 0);  // before the first sample
  EXPECT_ERROR(loader.next(), "position -100");
  EXPECT_ERROR(loader.next(), "position -100");
}

}  // namespace
}  // namespace orthant
