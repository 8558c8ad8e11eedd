// The register tile of products in f32: rows by two vectors of sums.
#pragma once

#include <algorithm>

#include "ops/cpu/gemm.h"
#include "ops/cpu/vector.h"

namespace orthant::cpu::ORTHANT_LEVEL {

inline constexpr int kTileRows = kLanes == 16 ? 12 : 6;  // as many sums as registers can hold
inline constexpr int kTileColumns = 2 * kLanes;

struct Tile {
  Floats row[kTileRows][2];
};

// Sum over k of a[i, k] b[k, j], one fma each, in the order of k. a[i, k] is
// a[i * kRowStep + k * kDepthStep]; a row of b is kTileColumns floats, b_step after the one before.
template <int kRowStep, int kDepthStep>
[[gnu::always_inline]] inline Tile tile_product(std::int64_t depth, const float* a, const float* b,
                                                std::int64_t b_step) {
  Tile sum{};
#pragma GCC unroll 4
  for (std::int64_t k = 0; k < depth; ++k) {
    const Floats b0 = load(b);
    const Floats b1 = load(b + kLanes);
#pragma GCC unroll 12
    for (int i = 0; i < kTileRows; ++i) {
      const Floats x = splat(a[i * kRowStep]);
      sum.row[i][0] = fma(x, b0, sum.row[i][0]);
      sum.row[i][1] = fma(x, b1, sum.row[i][1]);
    }
    a += kDepthStep;
    b += b_step;
  }
  return sum;
}

[[gnu::always_inline]] inline void store_tile(const Tile& tile, float* c, std::int64_t stride) {
#pragma GCC unroll 12
  for (int i = 0; i < kTileRows; ++i) {
    store(c + i * stride, tile.row[i][0]);
    store(c + i * stride + kLanes, tile.row[i][1]);
  }
}

// c = base + tile; base_stride 0 gives every row the same base.
[[gnu::always_inline]] inline void store_sum(const Tile& tile, const float* base,
                                             std::int64_t base_stride, float* c,
                                             std::int64_t stride) {
#pragma GCC unroll 12
  for (int i = 0; i < kTileRows; ++i) {
    store(c + i * stride, load(base + i * base_stride) + tile.row[i][0]);
    store(c + i * stride + kLanes, load(base + i * base_stride + kLanes) + tile.row[i][1]);
  }
}

// c = base + sums for the tile of p at (row, column), of `tile_rows` by `tile_columns` where p has
// as many, rounded to the type of c.
inline void store_part(const PackedProduct& p, const float* sums, std::int64_t tile_rows,
                       std::int64_t tile_columns, std::int64_t row, std::int64_t column) {
  const std::int64_t rows = std::min(tile_rows, p.rows - row);
  const std::int64_t columns = std::min(tile_columns, p.columns - column);
  const float* base = p.base + row * p.base_stride + column;
  const auto store_as = [&](auto* c) {
    c += row * p.c_stride + column;
    for (std::int64_t i = 0; i < rows; ++i) {
      for_vectors(columns, [&](std::int64_t j, auto lanes) {
        const Floats sum = load(sums + i * tile_columns + j, lanes);
        store(c + i * p.c_stride + j, load(base + i * p.base_stride + j, lanes) + sum, lanes);
      });
    }
  };
  switch (p.c_type) {
    case DType::kBF16: return store_as(reinterpret_cast<BFloat16*>(p.c));
    case DType::kF16: return store_as(reinterpret_cast<Half*>(p.c));
    default: return store_as(reinterpret_cast<float*>(p.c));
  }
}

}  // namespace orthant::cpu::ORTHANT_LEVEL
