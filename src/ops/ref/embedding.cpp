#include "ops/ref/doubles.h"
#include "ops/ref/ref_ops.h"

namespace orthant {

void RefOps::exec(const EmbeddingFwd& a, const Tensor& /*workspace*/) {
  const std::int64_t T = a.y.shape[0];
  const std::int64_t C = a.y.shape[1];
  const auto* ids = a.ids.ptr<const std::int32_t>();
  const Doubles table(a.table);
  Doubles y = a.write == Write::kAdd ? Doubles(a.y) : Doubles(T * C);
  for (std::int64_t t = 0; t < T; ++t) {
    const std::int64_t row = ids[t] - a.first_row;
    if (row < 0 || row >= a.table.shape[0]) continue;
    for (std::int64_t c = 0; c < C; ++c) {
      y[t * C + c] += table[row * C + c];
    }
  }
  y.store(a.y);
}

void RefOps::exec(const EmbeddingBwd& a, const Tensor& /*workspace*/) {
  const std::int64_t T = a.dy.shape[0];
  const std::int64_t C = a.dy.shape[1];
  const auto* ids = a.ids.ptr<const std::int32_t>();
  const Doubles dy(a.dy);
  Doubles dtable(a.dtable);
  for (std::int64_t t = 0; t < T; ++t) {
    const std::int64_t row = ids[t] - a.first_row;
    if (row < 0 || row >= a.dtable.shape[0]) continue;
    for (std::int64_t c = 0; c < C; ++c) {
      dtable[row * C + c] += dy[t * C + c];
    }
  }
  dtable.store(a.dtable);
}

}  // namespace orthant
