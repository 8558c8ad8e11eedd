#include <cstring>

#include "ops/cpu/backend.h"
#include "ops/cpu/parallel.h"

namespace orthant::cpu::ORTHANT_LEVEL {
namespace {

template <class T>
void look_up(const EmbeddingFwd& a, std::int64_t t, std::int64_t C) {
  const std::int64_t row = a.ids.ptr<const std::int32_t>()[t] - a.first_row;
  const bool is_here = row >= 0 && row < a.table.shape[0];
  T* y = a.y.ptr<T>() + t * C;
  const auto row_bytes = static_cast<std::size_t>(C) * sizeof(T);
  if (a.write == Write::kSet && is_here) {
    std::memcpy(y, a.table.ptr<const T>() + row * C, row_bytes);
  } else if (a.write == Write::kSet) {
    std::memset(static_cast<void*>(y), 0, row_bytes);
  } else if (is_here) {
    const T* from = a.table.ptr<const T>() + row * C;
    for_vectors(C, [&](std::int64_t i, auto lanes) {
      store(y + i, load(y + i, lanes) + load(from + i, lanes), lanes);
    });
  }
}

}  // namespace

void CpuOps::exec(const EmbeddingFwd& a, const Tensor& /*workspace*/) {
  const std::int64_t C = a.y.shape[1];
  with_type(a.y.dtype, EmbeddingFwd::kName, [&](auto element) {
    for_shares(num_threads_, a.y.shape[0], 1, 2 * a.y.bytes(),
               [&](std::int64_t first, std::int64_t last) {
                 for (std::int64_t t = first; t < last; ++t) {
                   look_up<decltype(element)>(a, t, C);
                 }
               });
  });
}

// A thread takes some columns of every token: so that a row of the table gets its tokens in order.
void CpuOps::exec(const EmbeddingBwd& a, const Tensor& /*workspace*/) {
  const std::int64_t T = a.dy.shape[0];
  const std::int64_t C = a.dy.shape[1];
  const auto* ids = a.ids.ptr<const std::int32_t>();
  with_type(a.dy.dtype, EmbeddingBwd::kName, [&](auto element) {
    using E = decltype(element);
    for_shares(num_threads_, C, 16, 2 * a.dy.bytes(), [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t t = 0; t < T; ++t) {
        const std::int64_t row = ids[t] - a.first_row;
        if (row < 0 || row >= a.dtable.shape[0]) continue;
        float* to = a.dtable.ptr<float>() + row * C + first;
        const E* dy = a.dy.ptr<const E>() + t * C + first;
        for_vectors(last - first, [&](std::int64_t i, auto lanes) {
          store(to + i, load(to + i, lanes) + load(dy + i, lanes), lanes);
        });
      }
    });
  });
}

}  // namespace orthant::cpu::ORTHANT_LEVEL
