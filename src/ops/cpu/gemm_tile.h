// The register tile of all matrix products: 6 rows by 16 columns of sums.
#pragma once

#include "ops/cpu/vector.h"

namespace orthant::cpu {

inline constexpr int kTileRows = 6;
inline constexpr int kTileColumns = 16;

struct Tile {
  F8 row[kTileRows][2];
};

// Sum over k of a[i, k] b[k, j], one fma each, in the order of k. a[i, k] is
// a[i * kRowStep + k * kDepthStep]; a row of b is 16 floats, b_step after the one before.
template <int kRowStep, int kDepthStep>
[[gnu::always_inline]] inline Tile tile_product(std::int64_t depth, const float* a, const float* b,
                                                std::int64_t b_step) {
  Tile sum{};
#pragma GCC unroll 4
  for (std::int64_t k = 0; k < depth; ++k) {
    const F8 b0 = load(b);
    const F8 b1 = load(b + 8);
#pragma GCC unroll 6
    for (int i = 0; i < kTileRows; ++i) {
      const F8 x = _mm256_broadcast_ss(a + i * kRowStep);
      sum.row[i][0] = fma(x, b0, sum.row[i][0]);
      sum.row[i][1] = fma(x, b1, sum.row[i][1]);
    }
    a += kDepthStep;
    b += b_step;
  }
  return sum;
}

[[gnu::always_inline]] inline void store_tile(const Tile& tile, float* c, std::int64_t stride) {
#pragma GCC unroll 6
  for (int i = 0; i < kTileRows; ++i) {
    store(c + i * stride, tile.row[i][0]);
    store(c + i * stride + 8, tile.row[i][1]);
  }
}

// c = base + tile; base_stride 0 gives every row the same base.
[[gnu::always_inline]] inline void store_sum(const Tile& tile, const float* base,
                                             std::int64_t base_stride, float* c,
                                             std::int64_t stride) {
#pragma GCC unroll 6
  for (int i = 0; i < kTileRows; ++i) {
    store(c + i * stride, load(base + i * base_stride) + tile.row[i][0]);
    store(c + i * stride + 8, load(base + i * base_stride + 8) + tile.row[i][1]);
  }
}

// The same additions for a tile at an edge: `rows` by `columns`.
inline void store_sum_part(const Tile& tile, const float* base, std::int64_t base_stride, float* c,
                           std::int64_t stride, int rows, int columns) {
  alignas(32) float sums[kTileRows * kTileColumns];
  store_tile(tile, sums, kTileColumns);
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < columns; ++j) {
      c[i * stride + j] = base[i * base_stride + j] + sums[i * kTileColumns + j];
    }
  }
}

}  // namespace orthant::cpu
