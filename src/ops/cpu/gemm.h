// Matrix products of our own: blocks packed into cache, then tiles of the result that stay in
// registers. An element of c is the sum of its products in a fixed order (chunks of a depth that K
// alone decides, in order), whatever tile or thread it falls to: so its bits do not depend on the
// number of threads.
#pragma once

#include <memory>

#include "ops/cpu/products.h"

namespace orthant::cpu {

// c = base + a b, of packed blocks.
struct PackedProduct {
  std::int64_t rows, columns, depth;
  const std::byte* a;  // panels of tile_rows rows
  const std::byte* b;  // panels of tile_columns columns
  const float* base;
  std::int64_t base_stride;  // 0: all rows have the same base
  std::byte* c;
  DType c_type;
  std::int64_t c_stride;
};

// How one kind of processor multiplies. A packed block of rows is rounded up to whole panels, its
// depth to whole depth_units, with zeros.
struct GemmForm {
  std::int64_t tile_rows, tile_columns;
  std::int64_t depth_unit;
  std::int64_t element_bytes;  // of a packed element
  // At most, of packed blocks and of the f32 sums of a result that is rounded.
  std::int64_t depth, rows, columns, sum_rows;
  // Rows first .. first + rows - 1 of a, elements k .. k + depth - 1 of each.
  void (*pack_a)(const Matrix& a, std::int64_t first, std::int64_t rows, std::int64_t k,
                 std::int64_t depth, std::byte* out);
  // Columns of b likewise.
  void (*pack_b)(const Matrix& b, std::int64_t first, std::int64_t columns, std::int64_t k,
                 std::int64_t depth, std::byte* out);
  void (*multiply)(const PackedProduct& product);
};
namespace avx2 {
GemmForm gemm_form();  // in f32
}
namespace avx512 {
GemmForm gemm_form();  // in f32
}
namespace amx {
GemmForm gemm_form();  // of bf16 alone
}

// Owns the packed blocks; nothing is allocated after construction.
class Gemm final : public Products {
 public:
  Gemm(const GemmForm& form, int num_threads);
  ~Gemm() override;
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;
  void run(const Product& product) override;

 private:
  struct Buffers;
  GemmForm form_;
  int num_threads_;
  std::unique_ptr<Buffers> buffers_;
};

}  // namespace orthant::cpu
