#include "ops/embedding.h"

#include "ops/expect.h"

namespace orthant {

void check(const EmbeddingFwd& a) {
  Expect expect(EmbeddingFwd::kName, Expect::Role::kIn, "table", a.table, 2);
  expect.anchor_is_float();
  ORTHANT_CHECK(a.ids.shape.rank() == 1, "embedding_fwd: ids is {}; it must have 1 dimension",
                a.ids.shape.text());
  const std::int64_t T = a.ids.shape[0];
  expect.in("ids", a.ids, {T}, DType::kI32);
  expect.out("y", a.y, {T, a.table.shape[1]}, a.table.dtype);
  ORTHANT_CHECK(a.first_row >= 0, "embedding_fwd: first_row={} must not be negative", a.first_row);
  expect.no_overlap({});
}

void check(const EmbeddingBwd& a) {
  Expect expect(EmbeddingBwd::kName, Expect::Role::kIn, "dy", a.dy, 2);
  expect.anchor_is_float();
  ORTHANT_CHECK(a.dtable.shape.rank() == 2,
                "embedding_bwd: dtable is {}; it must have 2 dimensions", a.dtable.shape.text());
  expect.in("ids", a.ids, {a.dy.shape[0]}, DType::kI32);
  expect.out("dtable", a.dtable, {a.dtable.shape[0], a.dy.shape[1]}, wide(a.dy.dtype));
  ORTHANT_CHECK(a.first_row >= 0, "embedding_bwd: first_row={} must not be negative", a.first_row);
  expect.no_overlap({});
}

// Of the table only the rows that ids name are touched.
Cost cost(const EmbeddingFwd& a) {
  const bool adds = a.write == Write::kAdd;
  const auto y_bytes = static_cast<double>(a.y.bytes());
  return {.flops = adds ? static_cast<double>(a.y.count()) : 0,
          .bytes = static_cast<double>(a.ids.bytes()) + (adds ? 3 : 2) * y_bytes};
}

Cost cost(const EmbeddingBwd& a) {
  const auto count = static_cast<double>(a.dy.count());
  return {.flops = count,
          .bytes = bytes_of(a.reads()) + 2 * count * static_cast<double>(size_of(a.dtable.dtype))};
}

std::int64_t workspace_bytes(const EmbeddingFwd& /*a*/) {
  return 0;
}
std::int64_t workspace_bytes(const EmbeddingBwd& /*a*/) {
  return 0;
}

}  // namespace orthant
