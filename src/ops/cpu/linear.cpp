// Linear layers as products of row-major matrices; bias gradients as column sums in row order.
#include "ops/cpu/backend.h"
#include "ops/cpu/parallel.h"

namespace orthant::cpu::ORTHANT_LEVEL {
namespace {

Matrix matrix(const Tensor& tensor, bool transposed = false) {
  return {.data = tensor.data,
          .dtype = tensor.dtype,
          .stride = tensor.shape[1],
          .transposed = transposed};
}

// db[o] += sum over rows of dy[t, o]: blocks of 64 rows, added in order.
template <class T>
void add_column_sums(const Tensor& db, const Tensor& dy, int num_threads) {
  constexpr std::int64_t kBlock = 64;
  const std::int64_t rows = dy.shape[0];
  const std::int64_t width = dy.shape[1];
  const T* from = dy.ptr<const T>();
  float* to = db.ptr<float>();
  for_shares(num_threads, width, 16, dy.bytes(), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = 0; row < rows; row += kBlock) {
      const std::int64_t end = std::min(rows, row + kBlock);
      for_vectors(last - first, [&](std::int64_t i, auto lanes) {
        const std::int64_t o = first + i;
        Floats sum = zero();
        for (std::int64_t t = row; t < end; ++t) {
          sum += load(from + t * width + o, lanes);
        }
        store(to + o, load(to + o, lanes) + sum, lanes);
      });
    }
  });
}

// Generation has few rows: weights are read once and used at once, packing would cost more.
constexpr std::int64_t kFewRows = 4;

// y[t, o] of up to kFewRows rows, as dot products of eight partial sums.
template <class T>
void multiply_few_rows(const LinearFwd& a, std::int64_t o) {
  const std::int64_t rows = a.x.shape[0];
  const std::int64_t I = a.x.shape[1];
  const T* x = a.x.ptr<const T>();
  const T* w = a.w.ptr<const T>() + o * I;
  Floats sums[kFewRows][2] = {};
  std::int64_t i = 0;
  for (; i + 2 * kLanes <= I; i += 2 * kLanes) {
    const Floats w0 = load(w + i);
    const Floats w1 = load(w + i + kLanes);
    for (std::int64_t t = 0; t < rows; ++t) {
      sums[t][0] = fma(load(x + t * I + i), w0, sums[t][0]);
      sums[t][1] = fma(load(x + t * I + i + kLanes), w1, sums[t][1]);
    }
  }
  for_vectors(I - i, [&](std::int64_t k, auto lanes) {
    for (std::int64_t t = 0; t < rows; ++t) {
      sums[t][0] = fma(load(x + t * I + i + k, lanes), load(w + i + k, lanes), sums[t][0]);
    }
  });
  const float bias = a.b.present() ? value_of(a.b.ptr<const T>()[o]) : 0;
  for (std::int64_t t = 0; t < rows; ++t) {
    const float y = sum(sums[t][0] + sums[t][1]) + bias;
    store(a.y.ptr<T>() + t * a.w.shape[0] + o, splat(y), Tail{1});
  }
}

}  // namespace

void CpuOps::exec(const LinearFwd& a, const Tensor& workspace) {
  multiply(a);
  if (a.gelu.present()) exec(GeluFwd{.y = a.gelu, .x = a.y}, workspace);
}

void CpuOps::multiply(const LinearFwd& a) {
  if (a.x.shape[0] <= kFewRows) {
    with_type(a.x.dtype, LinearFwd::kName, [&](auto element) {
      for_shares(num_threads_, a.w.shape[0], 16, a.w.bytes(),
                 [&](std::int64_t first, std::int64_t last) {
                   for (std::int64_t o = first; o < last; ++o) {
                     multiply_few_rows<decltype(element)>(a, o);
                   }
                 });
    });
    return;
  }
  workshop_->products().run({.M = a.x.shape[0],
                             .N = a.w.shape[0],
                             .K = a.x.shape[1],
                             .a = matrix(a.x),
                             .b = matrix(a.w, true),
                             .c = a.y.data,
                             .c_type = a.y.dtype,
                             .c_stride = a.y.shape[1],
                             .bias = a.b.data,
                             .into = Into::kSet});
}

void CpuOps::exec(const LinearBwdInput& a, const Tensor& workspace) {
  workshop_->products().run({.M = a.dy.shape[0],
                             .N = a.w.shape[1],
                             .K = a.dy.shape[1],
                             .a = matrix(a.dy),
                             .b = matrix(a.w),
                             .c = a.dx.data,
                             .c_type = a.dx.dtype,
                             .c_stride = a.dx.shape[1],
                             .bias = nullptr,
                             .into = Into::kSet});
  if (a.gelu_x.present()) exec(GeluBwd{.dx = a.dx, .dy = a.dx, .x = a.gelu_x}, workspace);
}

void CpuOps::exec(const LinearBwdWeight& a, const Tensor& /*workspace*/) {
  workshop_->products().run({.M = a.dy.shape[1],
                             .N = a.x.shape[1],
                             .K = a.dy.shape[0],
                             .a = matrix(a.dy, true),
                             .b = matrix(a.x),
                             .c = a.dw.data,
                             .c_type = a.dw.dtype,
                             .c_stride = a.dw.shape[1],
                             .bias = nullptr,
                             .into = Into::kAdd});
  if (a.db.present()) {
    with_type(a.dy.dtype, LinearBwdWeight::kName,
              [&](auto element) { add_column_sums<decltype(element)>(a.db, a.dy, num_threads_); });
  }
}

}  // namespace orthant::cpu::ORTHANT_LEVEL
