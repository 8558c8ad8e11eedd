// Products of bf16 in tiles of AMX.
#include <algorithm>

#include "ops/cpu/amx_tiles.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/gemm_tile.h"

namespace orthant::cpu::avx512 {
namespace {

void pack_a(const Matrix& a, std::int64_t first, std::int64_t rows, std::int64_t k,
            std::int64_t depth, std::byte* out) {
  pack<Operand::kRows>(a, !a.transposed, first, rows, k, depth, out);
}

void pack_b(const Matrix& b, std::int64_t first, std::int64_t columns, std::int64_t k,
            std::int64_t depth, std::byte* out) {
  pack<Operand::kPairs>(b, b.transposed, first, columns, k, depth, out);
}

// Asks for the lines of the result that a tile will be added to.
inline void prefetch_result(const PackedProduct& p, std::int64_t row, std::int64_t column) {
  if (p.c_type != DType::kF32) return;
  const std::int64_t rows = std::min(kPanel, p.rows - row);
  const auto* c = reinterpret_cast<const float*>(p.c) + row * p.c_stride + column;
  for (std::int64_t i = 0; i < rows; ++i) {
    _mm_prefetch(reinterpret_cast<const char*>(c + i * p.c_stride), _MM_HINT_T1);
    _mm_prefetch(reinterpret_cast<const char*>(c + i * p.c_stride + kSide), _MM_HINT_T1);
  }
}

void multiply(const PackedProduct& p) {
  const TilesInUse tiles;
  const std::int64_t steps = (p.depth + kStep - 1) / kStep;
  const std::int64_t panel_bytes = steps * kStepBytes;
  alignas(64) float sums[kPanel * kPanel];
  for (std::int64_t column = 0; column < p.columns; column += kPanel) {
    for (std::int64_t row = 0; row < p.rows; row += kPanel) {
      prefetch_result(p, row, column);
      multiply_panels(steps, p.a + row / kPanel * panel_bytes, p.b + column / kPanel * panel_bytes,
                      sums);
      store_part(p, sums, kPanel, kPanel, row, column);
    }
  }
}

}  // namespace
}  // namespace orthant::cpu::avx512

namespace orthant::cpu::amx {

GemmForm gemm_form() {
  return {.tile_rows = avx512::kPanel,
          .tile_columns = avx512::kPanel,
          .depth_unit = avx512::kStep,
          .element_bytes = sizeof(BFloat16),
          .depth = 1024,
          .rows = 256,
          .columns = 768,
          .sum_rows = 2048,
          .pack_a = avx512::pack_a,
          .pack_b = avx512::pack_b,
          .multiply = avx512::multiply};
}

}  // namespace orthant::cpu::amx
