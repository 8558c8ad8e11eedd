// Attention by our own kernels: any head width, any type, dropout with the masks of the cpu
// backend. Correct first: products run on the ordinary units, in f32.
#pragma once

#include "ops/attention.h"
#include "ops/cuda/kernel.cuh"
#include "ops/cuda/philox.cuh"

namespace orthant::cuda {

// What the kernels need of a call; sizes as in AttentionShape.
struct OwnAttention {
  std::int64_t S;
  int H, G, D;
  float scale;
  const float* slopes;             // may be null
  const std::int32_t* positions;   // of tokens in their documents; may be null
  const std::int64_t* sample_ids;  // null: no dropout
  std::int64_t first_head;
  std::int64_t num_all_heads;
  DropoutRule dropout;

  __device__ std::int64_t width() const { return static_cast<std::int64_t>(H + 2 * G) * D; }
  __device__ int group_of(int head) const { return head / (H / G); }
  // Offsets of a row's query head, key head and value head.
  __device__ std::int64_t q(int head) const { return static_cast<std::int64_t>(head) * D; }
  __device__ std::int64_t k(int group) const { return static_cast<std::int64_t>(H + group) * D; }
  __device__ std::int64_t v(int group) const {
    return static_cast<std::int64_t>(H + G + group) * D;
  }
  __device__ float slope(int head) const { return slopes == nullptr ? 0.0F : slopes[head]; }
  // The first key that a query sees: the first of its document. A tile of queries sees no key
  // before that of its first one. Queries from S on, which fill a tile, stand where the last does.
  __device__ std::int64_t first_key(std::int64_t b, std::int64_t query) const {
    if (positions == nullptr) return 0;
    const std::int64_t at = query < S ? query : S - 1;
    return at - positions[b * S + at];
  }
  // What the probability of (b, head, query, key) is multiplied by.
  __device__ float factor(const DropoutRule::Step& step, std::int64_t b, int head,
                          std::int64_t query, std::int64_t key) const {
    if (sample_ids == nullptr) return 1.0F;
    const std::int64_t row = (sample_ids[b] * num_all_heads + first_head + head) * S + query;
    return dropout.factor(step, static_cast<std::uint64_t>(row * S + key));
  }
  __device__ DropoutRule::Step step() const {
    return sample_ids == nullptr ? DropoutRule::Step{} : dropout.of_step();
  }
};

inline OwnAttention own_attention(const AttentionShape& n, const Tensor& slopes,
                                  const Tensor& positions, const Tensor& sample_ids,
                                  const Tensor& step_state) {
  return {.S = n.S,
          .H = static_cast<int>(n.H),
          .G = static_cast<int>(n.G),
          .D = static_cast<int>(n.D),
          .scale = static_cast<float>(n.scale),
          .slopes = slopes.ptr<const float>(),
          .positions = positions.ptr<const std::int32_t>(),
          .sample_ids = n.dropout > 0 ? sample_ids.ptr<const std::int64_t>() : nullptr,
          .first_head = n.first_head,
          .num_all_heads = n.num_all_heads,
          .dropout = make_dropout_rule(step_state, n.site, n.dropout)};
}

// A tile of rows in shared memory, a row padded by one against bank conflicts.
struct Tile {
  float* at;
  int stride;
  __device__ float* row(int i) const { return at + i * stride; }
};

inline constexpr int kTile = 32;      // queries or keys of a tile, where shared memory takes it
inline constexpr int kSmallTile = 8;  // where it does not
inline constexpr int kTileThreads = 256;

// Rows first.. of a [B*S,...] tensor into a tile; rows from `end` on are zero.
template <class T>
__device__ inline void load_tile(const Tile& tile, int rows, int D, const T* from,
                                 std::int64_t stride, std::int64_t first, std::int64_t end) {
  for (int i = static_cast<int>(threadIdx.x); i < rows * D; i += static_cast<int>(blockDim.x)) {
    const int row = i / D;
    const int d = i % D;
    tile.row(row)[d] = first + row < end ? to_float(from[(first + row) * stride + d]) : 0.0F;
  }
}

__device__ inline float dot(const float* a, const float* b, int D) {
  float sum = 0;
  for (int d = 0; d < D; ++d) {
    sum = __fmaf_rn(a[d], b[d], sum);
  }
  return sum;
}

// Calls f with the largest tile for which `tiles` of D columns and `squares` of weights fit.
template <class F>
inline void with_tile(std::int64_t D, int tiles, int squares, std::string_view op, F&& f) {
  int most = 0;
  int gpu = 0;
  ORTHANT_CUDA(cudaGetDevice(&gpu));
  ORTHANT_CUDA(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, gpu));
  const auto bytes_of = [&](std::int64_t rows) {
    const std::int64_t floats = tiles * rows * (D + 1) + squares * rows * (rows + 1) + 4 * rows;
    return floats * static_cast<std::int64_t>(sizeof(float));
  };
  if (bytes_of(kTile) <= most) {
    return f(std::integral_constant<int, kTile>{}, static_cast<std::size_t>(bytes_of(kTile)));
  }
  if (bytes_of(kSmallTile) <= most) {
    return f(std::integral_constant<int, kSmallTile>{},
             static_cast<std::size_t>(bytes_of(kSmallTile)));
  }
  fail_user("{}: heads of {} elements are wider than the cuda backend takes", op, D);
}

}  // namespace orthant::cuda
