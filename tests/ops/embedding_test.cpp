// Embedding tables: parts of a table add up to the whole, and the gradient.
#include <gtest/gtest.h>

#include "tests/support/grad_check.h"

namespace orthant {
namespace {

constexpr DType kF64 = DType::kF64;
constexpr std::int64_t kIds[] = {0, 3, 5, 3, 2};

TEST(Embedding, PartsOfATableAddUpToTheWhole) {
  OpBed bed("ref");
  const Tensor ids = bed.whole({5}, DType::kI32, kIds);
  const Tensor table = bed.normal("table", {6, 4}, kF64);
  const Tensor whole = bed.out({5, 4}, kF64);
  const Tensor sum = bed.out({5, 4}, kF64);
  bed.run(
      EmbeddingFwd{.y = whole, .ids = ids, .table = table, .first_row = 0, .write = Write::kSet});
  bed.run(EmbeddingFwd{
      .y = sum, .ids = ids, .table = table.rows(0, 3), .first_row = 0, .write = Write::kSet});
  bed.run(EmbeddingFwd{
      .y = sum, .ids = ids, .table = table.rows(3, 3), .first_row = 3, .write = Write::kAdd});
  expect_close(sum, whole, 0, "sum");
  expect_close(whole.rows(1, 1), table.rows(3, 1), 0, "row 3");
}

TEST(Embedding, BackwardMatchesFiniteDifferences) {
  OpBed bed("ref");
  const Tensor y = bed.out({5, 4}, kF64);
  const Tensor ids = bed.whole({5}, DType::kI32, kIds);
  const Tensor table = bed.normal("table", {3, 4}, kF64);
  const Tensor dy = bed.normal("dy", {5, 4}, kF64);
  const Tensor dtable = bed.zeros({3, 4}, kF64);
  const auto objective = [&] {
    bed.run(EmbeddingFwd{.y = y, .ids = ids, .table = table, .first_row = 2, .write = Write::kSet});
    return inner(y, dy);
  };
  bed.run(EmbeddingBwd{.dtable = dtable, .dy = dy, .ids = ids, .first_row = 2});
  expect_gradient(objective, table, dtable, "dtable");
}

}  // namespace
}  // namespace orthant
