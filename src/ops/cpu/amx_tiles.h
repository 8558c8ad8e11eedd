// Tiles of AMX: sixteen rows of 32 elements of bf16 times 32 elements of sixteen columns, added to
// sixteen by sixteen sums in f32. Panels of two tiles lie one behind the other, 32 elements of the
// depth at a time. For files compiled with AVX-512 and AMX.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/cpu/products.h"
#include "ops/cpu/vector.h"

namespace orthant::cpu::avx512 {

inline constexpr std::int64_t kSide = 16;   // rows of a tile register
inline constexpr std::int64_t kStep = 32;   // elements of one of its rows
inline constexpr std::int64_t kPanel = 32;  // rows or columns of a panel: two tiles
inline constexpr std::int64_t kTileBytes = 1024;
inline constexpr std::int64_t kStepBytes = 2 * kTileBytes;  // of a panel

// What a tile of a is: its rows, or of b: pairs of elements, k and k + 1, of its columns.
enum class Operand : std::uint8_t { kRows, kPairs };

inline std::uint32_t bit_mask(std::int64_t count) {
  if (count >= 32) return ~0U;
  return count <= 0 ? 0U : (1U << static_cast<unsigned>(count)) - 1U;
}

// Sixteen rows of 32 neighbouring elements each, of which `rows` and `depth` are there.
inline void load_rows(const BFloat16* from, std::int64_t stride, std::int64_t rows,
                      std::int64_t depth, Floats (&tile)[kSide]) {
  const std::uint32_t mask = bit_mask(depth);
  for (std::int64_t i = 0; i < kSide; ++i) {
    tile[i] =
        i < rows ? _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(mask, from + i * stride)) : zero();
  }
}

// 32 lines of sixteen neighbouring elements, two lines a vector: pairs of elements.
inline void load_pairs(const BFloat16* from, std::int64_t stride, std::int64_t rows,
                       std::int64_t depth, Floats (&tile)[kSide]) {
  const auto mask = static_cast<Mask>(bit_mask(rows));
  const auto line = [&](std::int64_t k) {
    const Mask there = k < depth ? mask : Mask{0};
    return (Ints)_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, from + k * stride));
  };
  for (std::int64_t i = 0; i < kSide; ++i) {
    tile[i] = floats_of(line(2 * i) | line(2 * i + 1) << 16);
  }
}

// Rows (or columns) first .. first + rows - 1 as panels of two tiles for each 32 elements.
template <Operand operand>
void pack(const Matrix& from, bool depth_is_contiguous, std::int64_t first, std::int64_t rows,
          std::int64_t k, std::int64_t depth, std::byte* out) {
  const auto* data = reinterpret_cast<const BFloat16*>(from.data);
  const std::int64_t row_step = depth_is_contiguous ? from.stride : 1;
  const std::int64_t depth_step = depth_is_contiguous ? 1 : from.stride;
  for (std::int64_t row = 0; row < rows; row += kPanel) {
    for (std::int64_t at = 0; at < depth; at += kStep) {
      for (std::int64_t half = row; half < row + kPanel; half += kSide) {
        const BFloat16* corner = data + (first + half) * row_step + (k + at) * depth_step;
        Floats tile[kSide];
        if (depth_is_contiguous) {
          load_rows(corner, from.stride, rows - half, depth - at, tile);
        } else {
          load_pairs(corner, from.stride, rows - half, depth - at, tile);
        }
        if (depth_is_contiguous != (operand == Operand::kRows)) transpose(tile);
        for (const Floats& line : tile) {
          _mm512_store_ps(out, line);
          out += sizeof(line);
        }
      }
    }
  }
}

struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// All eight tile registers as sixteen rows of 64 bytes, for the life of this object and its thread.
class TilesInUse {
 public:
  TilesInUse() { _tile_loadconfig(&kConfig); }
  ~TilesInUse() { _tile_release(); }
  TilesInUse(const TilesInUse&) = delete;
  TilesInUse& operator=(const TilesInUse&) = delete;

 private:
  static constexpr TileConfig kConfig = {};
};

// sums [kPanel, kPanel] = a panel of a times a panel of b, `steps` deep.
inline void multiply_panels(std::int64_t steps, const std::byte* a, const std::byte* b, float* sums,
                            std::int64_t stride = kPanel) {
  // Loads of tiles are not known to the compiler to read what was stored before.
  asm volatile("" ::: "memory");
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (std::int64_t i = 0; i < steps; ++i) {
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    _tile_loadd(7, b + kTileBytes, 64);
    _tile_loadd(5, a + kTileBytes, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    a += kStepBytes;
    b += kStepBytes;
  }
  const std::int64_t row_bytes = stride * static_cast<std::int64_t>(sizeof(float));
  _tile_stored(0, sums, row_bytes);
  _tile_stored(1, sums + kSide, row_bytes);
  _tile_stored(2, sums + kSide * stride, row_bytes);
  _tile_stored(3, sums + kSide * stride + kSide, row_bytes);
}

}  // namespace orthant::cpu::avx512
