// LayerNorm and RMSNorm, a row at a time while it is in the first-level cache.
#include <cmath>

#include "ops/cpu/backend.h"
#include "ops/cpu/parallel.h"

namespace orthant::cpu::ORTHANT_LEVEL {
namespace {

// Sums f(i, lanes) over a row of n elements: four vectors of partial sums, so that additions do not
// wait for each other. The order depends on n alone.
template <class F>
inline float row_sum(std::int64_t n, F&& f) {
  Floats part[4] = {zero(), zero(), zero(), zero()};
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    for (int j = 0; j < 4; ++j) {
      part[j] += f(i + j * kLanes, Full{});
    }
  }
  for_vectors(n - i, [&](std::int64_t k, auto lanes) { part[0] += f(i + k, lanes); });
  return sum((part[0] + part[1]) + (part[2] + part[3]));
}

template <class T>
void norm_row(const NormFwd& a, std::int64_t t, std::int64_t C) {
  const bool centers = a.kind == NormKind::kLayerNorm;
  const T* x = a.x.ptr<const T>() + t * C;
  if (a.addend.present()) {
    const T* addend = a.addend.ptr<const T>() + t * C;
    T* sum = a.sum.ptr<T>() + t * C;
    for_vectors(C, [&](std::int64_t i, auto lanes) {
      store(sum + i, load(x + i, lanes) + load(addend + i, lanes), lanes);
    });
    x = sum;
  }
  const T* w = a.w.ptr<const T>();
  const auto width = static_cast<float>(C);
  float mean = 0;
  if (centers) {
    mean = row_sum(C, [&](std::int64_t i, auto lanes) { return load(x + i, lanes); }) / width;
    a.mean.ptr<float>()[t] = mean;
  }
  const Floats means = splat(mean);
  const float squares = row_sum(C, [&](std::int64_t i, auto lanes) {
    const Floats centered = keep(load(x + i, lanes) - means, zero(), lanes);
    return centered * centered;
  });
  const auto variance = static_cast<double>(squares / width);
  const auto rstd = static_cast<float>(1 / std::sqrt(variance + a.eps));
  a.rstd.ptr<float>()[t] = rstd;
  T* y = a.y.ptr<T>() + t * C;
  const T* b = centers ? a.b.ptr<const T>() : nullptr;
  for_vectors(C, [&](std::int64_t i, auto lanes) {
    const Floats normed = (load(x + i, lanes) - means) * splat(rstd);
    const Floats scale = load(w + i, lanes);
    store(y + i, centers ? fma(normed, scale, load(b + i, lanes)) : normed * scale, lanes);
  });
}

// One row of the backward pass; adds its terms of dw and db to the sums of its block.
template <class T>
void norm_row_backward(const NormBwd& a, std::int64_t t, std::int64_t C, float* dw, float* db) {
  const bool centers = a.kind == NormKind::kLayerNorm;
  const T* dy = a.dy.ptr<const T>() + t * C;
  const T* x = a.x.ptr<const T>() + t * C;
  const T* w = a.w.ptr<const T>();
  const Floats means = splat(centers ? a.mean.ptr<const float>()[t] : 0);
  const Floats rstd = splat(a.rstd.ptr<const float>()[t]);
  const auto width = static_cast<float>(C);
  // y = n * w + b with n = (x - mean) * rstd; g = dy * w is the gradient of n.
  Floats sum_g = zero();
  const float sum_gn = row_sum(C, [&](std::int64_t i, auto lanes) {
    const Floats d = load(dy + i, lanes);
    const Floats n = (load(x + i, lanes) - means) * rstd;
    store(dw + i, fma(d, n, load(dw + i, lanes)), lanes);
    const Floats g = d * load(w + i, lanes);
    if (centers) {
      store(db + i, load(db + i, lanes) + d, lanes);
      sum_g += g;
    }
    return keep(g * n, zero(), lanes);
  });
  const Floats mean_g = splat(sum(sum_g) / width);
  const Floats mean_gn = splat(sum_gn / width);
  T* dx = a.dx.ptr<T>() + t * C;
  const T* d_residual = a.d_residual.present() ? a.d_residual.ptr<const T>() + t * C : nullptr;
  for_vectors(C, [&](std::int64_t i, auto lanes) {
    const Floats n = (load(x + i, lanes) - means) * rstd;
    const Floats g = fma(load(dy + i, lanes), load(w + i, lanes), zero() - mean_g);
    Floats d = negative_fma(n, mean_gn, g) * rstd;
    if (d_residual != nullptr) d += load(d_residual + i, lanes);
    store(dx + i, d, lanes);
  });
}

// out = sum of the blocks' rows, in block order.
void add_blocks(const float* blocks, std::int64_t num_blocks, std::int64_t stride,
                std::int64_t first, std::int64_t last, float* out) {
  for_vectors(last - first, [&](std::int64_t i, auto lanes) {
    Floats total = zero();
    for (std::int64_t block = 0; block < num_blocks; ++block) {
      total += load(blocks + block * stride + first + i, lanes);
    }
    store(out + first + i, total, lanes);
  });
}

}  // namespace

void CpuOps::exec(const NormFwd& a, const Tensor& /*workspace*/) {
  const std::int64_t C = a.x.shape[1];
  with_type(a.x.dtype, NormFwd::kName, [&](auto element) {
    for_shares(num_threads_, a.x.shape[0], 1, 4 * a.x.bytes(),
               [&](std::int64_t first, std::int64_t last) {
                 for (std::int64_t t = first; t < last; ++t) {
                   norm_row<decltype(element)>(a, t, C);
                 }
               });
  });
}

void CpuOps::exec(const NormBwd& a, const Tensor& workspace) {
  const std::int64_t T = a.x.shape[0];
  const std::int64_t C = a.x.shape[1];
  const std::int64_t num_blocks = (T + kNormBwdRows - 1) / kNormBwdRows;
  // A block's row: C sums of dw, then C of db.
  auto* blocks = workspace.ptr<float>();
  with_type(a.x.dtype, NormBwd::kName, [&](auto element) {
    for_shares(num_threads_, num_blocks, 1, 6 * a.x.bytes(),
               [&](std::int64_t first, std::int64_t last) {
                 for (std::int64_t block = first; block < last; ++block) {
                   float* dw = blocks + block * 2 * C;
                   std::fill(dw, dw + 2 * C, 0.0F);
                   const std::int64_t end = std::min(T, (block + 1) * kNormBwdRows);
                   for (std::int64_t t = block * kNormBwdRows; t < end; ++t) {
                     norm_row_backward<decltype(element)>(a, t, C, dw, dw + C);
                   }
                 }
               });
  });
  const std::int64_t bytes = num_blocks * C * 8;
  for_shares(num_threads_, C, kLanes, bytes, [&](std::int64_t first, std::int64_t last) {
    add_blocks(blocks, num_blocks, 2 * C, first, last, a.dw.ptr<float>());
    if (a.db.present()) add_blocks(blocks + C, num_blocks, 2 * C, first, last, a.db.ptr<float>());
  });
}

}  // namespace orthant::cpu::ORTHANT_LEVEL
