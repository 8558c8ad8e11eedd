// What forward and backward attention in tiles of AMX share: blocks of a head as packed panels.
#pragma once

#include "ops/cpu/amx_tiles.h"
#include "ops/cpu/attention_blocks.h"

namespace orthant::cpu::avx512 {

inline constexpr std::int64_t kBlock = 128;  // queries or keys of a block, at most

// Takes parts off a piece of memory, as packed panels of up to kBlock rows or columns.
class PanelCarver {
 public:
  explicit PanelCarver(float* memory) : carver_(memory) {}
  std::byte* panels(std::int64_t rows, std::int64_t depth) {
    return reinterpret_cast<std::byte*>(
        carver_.take(round_up(rows, kPanel) * round_up(depth, kStep) / 2));
  }
  float* floats(std::int64_t count) { return carver_.take(count); }
  BFloat16* halves(std::int64_t count) {
    return reinterpret_cast<BFloat16*>(carver_.take(count / 2));
  }

 private:
  Carver carver_;
};

// Rows of a head as the operands of products over its width ...
template <Operand operand>
inline void pack_rows_of(const Rows<const BFloat16>& from, std::int64_t first, std::int64_t rows,
                         std::int64_t D, std::byte* out) {
  pack<operand>({reinterpret_cast<const std::byte*>(from.data), DType::kBF16, from.stride, false},
                true, first, rows, 0, D, out);
}
// ... and over the rows.
inline void pack_lines_of(const Rows<const BFloat16>& from, std::int64_t first, std::int64_t rows,
                          std::int64_t D, std::byte* out) {
  pack<Operand::kPairs>(
      {reinterpret_cast<const std::byte*>(from.data), DType::kBF16, from.stride, false}, false, 0,
      D, first, rows, out);
}

inline std::int64_t steps_of(std::int64_t depth) {
  return (depth + kStep - 1) / kStep;
}

// Where panel `row` (of rows) and step `k` of panels `depth` deep lie.
inline std::int64_t panel_at(std::int64_t row, std::int64_t k, std::int64_t depth) {
  return (row / kPanel * steps_of(depth) + k / kStep) * kStepBytes;
}

}  // namespace orthant::cpu::avx512
