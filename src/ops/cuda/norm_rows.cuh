// How the rows of a norm are shared out: a row is in the registers of some warps of a block.
#pragma once

#include "ops/cuda/kernel.cuh"

namespace orthant::cuda {

inline constexpr int kWarp = 32;

// How rows of C elements are shared out: kRowThreads threads a row, each with kChunks packs.
template <int W, int kRowThreads, int kChunks, int kBlockThreads>
struct Split {
  static constexpr int width = W;
  static constexpr int row_threads = kRowThreads;
  static constexpr int chunks = kChunks;
  static constexpr int threads = kBlockThreads;
  static constexpr int rows = threads / kRowThreads;  // of a block at once
  static constexpr int row_elements = kRowThreads * kChunks * W;
  __device__ static int row() { return static_cast<int>(threadIdx.x) / kRowThreads; }
  // A thread's first column of a chunk.
  __device__ static int column(int chunk) {
    return (chunk * kRowThreads + static_cast<int>(threadIdx.x) % kRowThreads) * W;
  }
};

// Few threads a row, as long as what each keeps of it fits into its registers. What is fastest for
// rows of up to 256 packs differs: kInOneWarp has short ones in one warp and longer ones in a block
// of their own, kInSeveral has little in each of several warps and several rows in a block.
enum class ShortRows : std::uint8_t { kInOneWarp, kInSeveral };

template <int W, ShortRows kShort, class F>
inline void with_split(std::int64_t C, std::string_view op, F&& f) {
  const std::int64_t packs = (C + W - 1) / W;
  if constexpr (kShort == ShortRows::kInOneWarp) {
    if (packs <= 96) return f(Split<W, 32, 3, 256>{});
    if (packs <= 128) return f(Split<W, 32, 4, 256>{});
    if (packs <= 256) return f(Split<W, 128, 2, 128>{});
  } else {
    if (packs <= 32) return f(Split<W, 32, 1, 256>{});
    if (packs <= 64) return f(Split<W, 64, 1, 256>{});
    if (packs <= 96) return f(Split<W, 96, 1, 384>{});
    if (packs <= 128) return f(Split<W, 128, 1, 256>{});
  }
  if constexpr (W > 1) {
    if (packs <= 256) return f(Split<W, 128, 2, 256>{});
    if (packs <= 512) return f(Split<W, 256, 2, 256>{});
    if (packs <= 768) return f(Split<W, 256, 3, 256>{});
    if (packs <= 1024) return f(Split<W, 256, 4, 256>{});
    if (packs <= 2048) return f(Split<W, 512, 4, 512>{});
  }
  if (packs <= 16 * 1024) return f(Split<W, 1024, 16, 1024>{});
  fail_user("{}: rows of {} elements are longer than the cuda backend takes; {} are the most", op,
            C, 16 * 1024 * W);
}

// N sums over the threads of a row.
template <int N>
struct Sums {
  float of[N];
};

// Sums over the threads of a row, for all of them, in the order of its warps. A call uses the other
// half of `memory` than the one before, which slower warps may still read.
template <class S, int N>
class RowSums {
 public:
  static constexpr int kWarps = S::row_threads / kWarp;
  static constexpr int kMemory = 2 * S::threads / kWarp;  // of `memory`, in the block

  __device__ explicit RowSums(Sums<N>* memory) : memory_(memory + S::row() * 2 * kWarps) {}

  __device__ Sums<N> operator()(const Sums<N>& terms) {
    Sums<N> mine;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      mine.of[i] = warp_sum(terms.of[i]);
    }
    if constexpr (kWarps == 1) return mine;
    Sums<N>* const place = memory_ + half_ * kWarps;
    half_ ^= 1;
    if (threadIdx.x % kWarp == 0) place[threadIdx.x % S::row_threads / kWarp] = mine;
    wait_for_row();
    Sums<N> total{};
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        total.of[i] += place[warp].of[i];
      }
    }
    return total;
  }

 private:
  // Rows of a block are apart: each has a barrier of its own. Number 0 is that of the block.
  __device__ static void wait_for_row() {
    if constexpr (S::rows == 1) {
      __syncthreads();
    } else {
      asm volatile("bar.sync %0, %1;" ::"r"(S::row() + 1), "r"(S::row_threads) : "memory");
    }
  }

  Sums<N>* memory_;
  int half_ = 0;
};

}  // namespace orthant::cuda
