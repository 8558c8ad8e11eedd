// How the rows of a norm are shared out: a row is in the registers of a warp or of a block.
#pragma once

#include "ops/cuda/kernel.cuh"

namespace orthant::cuda {

inline constexpr int kWarp = 32;

// How rows of C elements are shared out: kRowThreads threads a row, each with kChunks packs.
template <int W, int kRowThreads, int kChunks>
struct Split {
  static constexpr int width = W;
  static constexpr int row_threads = kRowThreads;
  static constexpr int chunks = kChunks;
  static constexpr int threads = kRowThreads < kThreads ? kThreads : kRowThreads;
  static constexpr int rows = threads / kRowThreads;  // of a block at once
  static constexpr int row_elements = kRowThreads * kChunks * W;
  __device__ static int row() { return static_cast<int>(threadIdx.x) / kRowThreads; }
  // A thread's first column of a chunk.
  __device__ static int column(int chunk) {
    return (chunk * kRowThreads + static_cast<int>(threadIdx.x) % kRowThreads) * W;
  }
};

template <int W, class F>
inline void with_split(std::int64_t C, std::string_view op, F&& f) {
  const std::int64_t packs = (C + W - 1) / W;
  if constexpr (W > 1) {
    if (packs <= 3 * kWarp) return f(Split<W, kWarp, 3>{});
    if (packs <= 4 * kWarp) return f(Split<W, kWarp, 4>{});
    if (packs <= kThreads) return f(Split<W, kThreads, 1>{});
    if (packs <= 2 * kThreads) return f(Split<W, kThreads, 2>{});
    if (packs <= 4 * kThreads) return f(Split<W, kThreads, 4>{});
  } else if (packs <= 4 * kWarp) {
    return f(Split<W, kWarp, 4>{});
  }
  if (packs <= 16 * 1024) return f(Split<W, 1024, 16>{});
  fail_user("{}: rows of {} elements are longer than the cuda backend takes; {} are the most", op,
            C, 16 * 1024 * W);
}

// Sum over the threads of a row, for all of them.
template <class S>
__device__ inline float row_sum(float v, float* shared) {
  if constexpr (S::row_threads == kWarp) {
    return warp_sum(v);
  } else {
    const float total = block_sum(v, shared);
    __syncthreads();
    return total;
  }
}

}  // namespace orthant::cuda
