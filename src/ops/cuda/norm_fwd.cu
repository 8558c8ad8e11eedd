// LayerNorm and RMSNorm; a row is read once.
#include "ops/cuda/backend.h"
#include "ops/cuda/norm_rows.cuh"

namespace orthant::cuda {
namespace {

struct FwdArgs {
  std::int64_t T;
  std::int64_t C;
  float eps;
  float* mean;  // null: RMSNorm
  float* rstd;
};

template <class S, class T>
__global__ void __launch_bounds__(S::threads)
    norm_kernel(FwdArgs n, T* y, T* sum, const T* x, const T* addend, const T* w, const T* b) {
  constexpr int W = S::width;
  __shared__ Sums<1> memory[RowSums<S, 1>::kMemory];
  RowSums<S, 1> sum_row(memory);
  const std::int64_t t = static_cast<std::int64_t>(blockIdx.x) * S::rows + S::row();
  if (t >= n.T) return;  // all threads of a row
  Values<W> v[S::chunks];
  float total = 0;
#pragma unroll
  for (int i = 0; i < S::chunks; ++i) {
    const int c = S::column(i);
    if (c >= n.C) continue;
    v[i] = load<W>(x + t * n.C + c);
    if (addend != nullptr) {
      const Values<W> other = load<W>(addend + t * n.C + c);
#pragma unroll
      for (int k = 0; k < W; ++k) {
        v[i].at[k] = rounded<T>(v[i].at[k] + other.at[k]);
      }
      store<W>(sum + t * n.C + c, v[i]);
    }
#pragma unroll
    for (int k = 0; k < W; ++k) {
      total += v[i].at[k];
    }
  }
  const bool centers = n.mean != nullptr;
  const auto width = static_cast<float>(n.C);
  const float mean = centers ? sum_row({total}).of[0] / width : 0.0F;
  float squares = 0;
#pragma unroll
  for (int i = 0; i < S::chunks; ++i) {
    if (S::column(i) >= n.C) continue;
#pragma unroll
    for (int k = 0; k < W; ++k) {
      const float centered = v[i].at[k] - mean;
      squares = __fmaf_rn(centered, centered, squares);
    }
  }
  const float variance = sum_row({squares}).of[0] / width;
  const float rstd = __frsqrt_rn(variance + n.eps);
  if (S::column(0) == 0) {
    if (centers) n.mean[t] = mean;
    n.rstd[t] = rstd;
  }
#pragma unroll
  for (int i = 0; i < S::chunks; ++i) {
    const int c = S::column(i);
    if (c >= n.C) continue;
    const Values<W> scale = load<W>(w + c);
    Values<W> shift{};
    if (centers) shift = load<W>(b + c);
    Values<W> out;
#pragma unroll
    for (int k = 0; k < W; ++k) {
      const float normed = (v[i].at[k] - mean) * rstd;
      out.at[k] = centers ? __fmaf_rn(normed, scale.at[k], shift.at[k]) : normed * scale.at[k];
    }
    store<W>(y + t * n.C + c, out);
  }
}

}  // namespace

void CudaOps::exec(const NormFwd& a, const Tensor& /*workspace*/) {
  const FwdArgs n{.T = a.x.shape[0],
                  .C = a.x.shape[1],
                  .eps = static_cast<float>(a.eps),
                  .mean = a.mean.ptr<float>(),
                  .rstd = a.rstd.ptr<float>()};
  if (a.x.count() == 0) return;
  const bool packs =
      n.C % kPack == 0 && are_aligned(a.x, a.addend, a.sum, a.y) && are_aligned(a.w, a.b);
  with_type(a.x.dtype, NormFwd::kName, [&](auto element) {
    using T = decltype(element);
    with_width(packs, [&](auto width) {
      with_split<decltype(width)::value, ShortRows::kInOneWarp>(
          n.C, NormFwd::kName, [&](auto split) {
            using S = decltype(split);
            norm_kernel<S><<<blocks_for(n.T, S::rows), S::threads, 0, stream_>>>(
                n, a.y.ptr<T>(), a.sum.ptr<T>(), a.x.ptr<const T>(), a.addend.ptr<const T>(),
                a.w.ptr<const T>(), a.b.ptr<const T>());
          });
    });
  });
  check_launch(NormFwd::kName);
}

}  // namespace orthant::cuda
