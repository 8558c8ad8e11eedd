// Pieces: any way of splitting a tensor over ranks re-cuts into any other, exactly.
#include "dist/piece.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/check.h"
#include "base/random.h"

namespace orthant {
namespace {

// One way to lay a tensor over ranks: tp boxes along one dimension, each cut flat into shards.
struct Way {
  int split_dim;  // -1: every tp rank holds the whole
  int tp;
  int shards;
  std::int64_t padded;  // extent of the split dimension before it is cut; at least the logical one
};

std::vector<Piece> pieces_of(const Shape& global, const Way& way) {
  std::vector<Piece> pieces;
  for (int tp = 0; tp < (way.split_dim < 0 ? 1 : way.tp); ++tp) {
    Box box{.begin = {}, .extent = global};
    if (way.split_dim >= 0) {
      const std::int64_t extent = way.padded / way.tp;
      const std::int64_t begin = tp * extent;
      const std::int64_t end = std::min(begin + extent, global[way.split_dim]);
      box.begin[static_cast<std::size_t>(way.split_dim)] = begin;
      box.extent = global.with(way.split_dim, std::max<std::int64_t>(end - begin, 0));
    }
    // As a flat shard of a padded unit: the last may be short or empty.
    const std::int64_t count = box.extent.count();
    const std::int64_t shard = (count + way.shards - 1) / way.shards;
    for (int i = 0; i < way.shards; ++i) {
      const std::int64_t first = std::min(i * shard, count);
      pieces.push_back({.name = "w",
                        .global = global,
                        .box = box,
                        .first = first,
                        .count = std::min(shard, count - first)});
    }
  }
  return pieces;
}

std::vector<Way> ways_of(const Shape& global) {
  std::vector<Way> ways = {{-1, 1, 1, 0}, {-1, 1, 3, 0}, {-1, 1, 8, 0}};
  for (int dim = 0; dim < global.rank(); ++dim) {
    for (const int tp : {2, 3, 8}) {
      const std::int64_t padded = (global[dim] + tp - 1) / tp * tp;
      for (const int shards : {1, 2, 5}) {
        ways.push_back({dim, tp, shards, padded});
        ways.push_back({dim, tp, shards, padded + 4 * tp});
      }
    }
  }
  return ways;
}

std::vector<float> read(const std::vector<float>& whole, const Piece& piece) {
  std::vector<float> data(static_cast<std::size_t>(piece.count));
  for (const Run& run : runs_of(piece)) {
    std::copy_n(whole.begin() + run.global, run.count, data.begin() + run.local);
  }
  return data;
}

const Shape kShapes[] = {{},     {1},       {17},         {6, 10},     {13, 1},
                         {1, 9}, {3, 4, 5}, {2, 7, 1, 6}, {3, 8, 4, 5}};

TEST(Piece, EveryWayRecutsIntoEveryOther) {
  std::int64_t num_pairs = 0;
  for (const Shape& global : kShapes) {
    std::vector<float> whole(static_cast<std::size_t>(global.count()));
    for (std::size_t i = 0; i < whole.size(); ++i) {
      whole[i] = static_cast<float>(normal(3, 0, i));
    }
    const std::vector<Way> ways = ways_of(global);
    for (const Way& from : ways) {
      const std::vector<Piece> saved = pieces_of(global, from);
      std::vector<std::vector<float>> saved_data;
      for (const Piece& piece : saved) {
        saved_data.push_back(read(whole, piece));
      }
      for (const Way& to : ways) {
        ++num_pairs;
        for (const Piece& wanted : pieces_of(global, to)) {
          std::vector<float> data(static_cast<std::size_t>(wanted.count), -1e9f);
          std::int64_t num_copied = 0;
          for (std::size_t i = 0; i < saved.size(); ++i) {
            for (const PieceCopy& copy : copies(saved[i], wanted)) {
              std::copy_n(saved_data[i].begin() + copy.from, copy.count, data.begin() + copy.to);
              num_copied += copy.count;
            }
          }
          ASSERT_EQ(num_copied, wanted.count) << global.text();
          ASSERT_EQ(data, read(whole, wanted)) << global.text();
        }
      }
    }
  }
  EXPECT_GT(num_pairs, 5000);
}

// The definition: walks the box element by element.
TEST(Piece, RunsAreThoseOfTheDefinitionAndAsLongAsPossible) {
  for (const Shape& global : kShapes) {
    for (const Way& way : ways_of(global)) {
      for (const Piece& piece : pieces_of(global, way)) {
        std::vector<std::int64_t> expected;
        const std::int64_t volume = piece.box.extent.count();
        for (std::int64_t at = 0; at < volume; ++at) {
          std::int64_t rest = at;
          std::int64_t offset = 0;
          std::int64_t stride = 1;
          for (int dim = global.rank() - 1; dim >= 0; --dim) {
            const std::int64_t extent = piece.box.extent[dim];
            offset += (piece.box.begin[static_cast<std::size_t>(dim)] + rest % extent) * stride;
            rest /= extent;
            stride *= global[dim];
          }
          if (at >= piece.first && at < piece.first + piece.count) expected.push_back(offset);
        }
        std::vector<std::int64_t> actual;
        std::int64_t end_of_last = -1;
        for (const auto& run : runs_of(piece)) {
          ASSERT_EQ(run.local, static_cast<std::int64_t>(actual.size()));
          ASSERT_GT(run.count, 0);
          ASSERT_GT(run.global, end_of_last) << "could have been one run";
          end_of_last = run.global + run.count;
          for (std::int64_t i = 0; i < run.count; ++i) {
            actual.push_back(run.global + i);
          }
        }
        ASSERT_EQ(actual, expected) << global.text();
      }
    }
  }
}

TEST(Piece, AWholeTensorIsOneRun) {
  const auto runs = runs_of(whole_piece("w", {5, 6, 7}));
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].count, 210);
  EXPECT_EQ(runs[0].global, 0);
}

TEST(Piece, RowsOfTheFirstDimensionAreOneRunAndColumnsAreOneEach) {
  Piece rows = whole_piece("w", {8, 6});
  rows.box = {.begin = {2, 0}, .extent = {4, 6}};
  rows.count = 24;
  ASSERT_EQ(runs_of(rows).size(), 1u);
  EXPECT_EQ(runs_of(rows)[0].global, 12);
  Piece columns = whole_piece("w", {8, 6});
  columns.box = {.begin = {0, 2}, .extent = {8, 3}};
  columns.count = 24;
  EXPECT_EQ(runs_of(columns).size(), 8u);
}

TEST(Piece, OfAnotherTensorOrOutsideOfItsBoxIsRefused) {
  const Piece a = whole_piece("a", {4});
  EXPECT_THROW((void)copies(a, whole_piece("b", {4})), Error);
  EXPECT_THROW((void)copies(a, whole_piece("a", {5})), Error);
  Piece outside = a;
  outside.box.begin[0] = 1;
  EXPECT_THROW((void)runs_of(outside), Error);
  Piece long_piece = a;
  long_piece.first = 2;
  EXPECT_THROW((void)runs_of(long_piece), Error);
}

}  // namespace
}  // namespace orthant
