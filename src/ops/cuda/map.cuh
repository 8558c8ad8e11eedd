// map: an op that works element by element over whole tensors, in one pass.
#pragma once

#include "ops/cuda/kernel.cuh"

namespace orthant::cuda {

// f of the k-th of each, for all k.
template <int W, class F, class... V>
__device__ inline Values<W> apply(const F& f, const V&... values) {
  Values<W> result;
#pragma unroll
  for (int k = 0; k < W; ++k) {
    result.at[k] = f(values.at[k]...);
  }
  return result;
}

template <int W, class F, class Out, class... In>
__device__ inline void map_at(const F& f, std::int64_t i, Out* y, const In*... x) {
  store<W>(y + i, apply<W>(f, load<W>(x + i)...));
}

template <int W, class F, class Out, class... In>
__global__ void map_kernel(F f, std::int64_t count, Out* y, const In*... x) {
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * W;
  if (first + W <= count) {
    map_at<W>(f, first, y, x...);
  } else {
    for (std::int64_t i = first; i < count; ++i) {
      map_at<1>(f, i, y, x...);
    }
  }
}

// y[i] = f(x[i]...) in f32. y may be the memory of an x of its size.
template <class F, class Out, class... In>
inline void map(cudaStream_t stream, bool packs, F f, std::int64_t count, Out* y, const In*... x) {
  if (count == 0) return;
  with_width(packs, [&](auto width) {
    constexpr int W = decltype(width)::value;
    map_kernel<W><<<blocks_for(count, kThreads * W), kThreads, 0, stream>>>(f, count, y, x...);
  });
}

}  // namespace orthant::cuda
