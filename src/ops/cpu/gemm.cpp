#include "ops/cpu/gemm.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "ops/cpu/aligned_floats.h"
#include "ops/cpu/parallel.h"

namespace orthant::cpu {
namespace {

using ORTHANT_LEVEL::meet;
using ORTHANT_LEVEL::on_threads;
using ORTHANT_LEVEL::Range;
using ORTHANT_LEVEL::share;

constexpr std::int64_t kSlack = 64;  // bytes that packing may write past the end

std::int64_t round_up(std::int64_t n, std::int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

AlignedFloats bytes_of(std::int64_t count) {
  return AlignedFloats(static_cast<std::size_t>((count + kSlack) / 4));
}

std::byte* bytes_at(AlignedFloats& floats) {
  return reinterpret_cast<std::byte*>(floats.data());
}

}  // namespace

struct Gemm::Buffers {
  Buffers(const GemmForm& form, int num_threads)
      : b{bytes_of(form.depth * form.columns * form.element_bytes),
          bytes_of(form.depth * form.columns * form.element_bytes)},
        sums(bytes_of(form.sum_rows * form.columns * 4)) {
    for (int thread = 0; thread < num_threads; ++thread) {
      a.push_back(bytes_of(form.depth * form.rows * form.element_bytes));
      bias.push_back(bytes_of(form.columns * 4));
    }
  }
  AlignedFloats b[2];
  AlignedFloats sums;
  std::vector<AlignedFloats> a;     // one for each thread
  std::vector<AlignedFloats> bias;  // of a block's columns; one for each thread
};

Gemm::Gemm(const GemmForm& form, int num_threads)
    : form_(form),
      num_threads_(num_threads),
      buffers_(std::make_unique<Buffers>(form, num_threads)) {}

Gemm::~Gemm() = default;

namespace {

// One block of columns and rows of c, and what of it is this thread's.
struct Block {
  std::int64_t row;     // of c
  std::int64_t column;  // of c
  std::int64_t columns;
  Range my_rows;  // within the block
  Range my_columns;
  const float* bias;  // of the block's columns, or zeros
  float* sums;        // f32 sums of the block
  std::int64_t sums_stride;
};

// One chunk of the inner dimension.
struct Chunk {
  std::int64_t k;
  std::int64_t depth;
  bool is_last;
};

float element(const std::byte* data, DType dtype, std::int64_t at) {
  switch (dtype) {
    case DType::kBF16: return static_cast<float>(reinterpret_cast<const BFloat16*>(data)[at]);
    case DType::kF16: return static_cast<float>(reinterpret_cast<const Half*>(data)[at]);
    default: return reinterpret_cast<const float*>(data)[at];
  }
}

// What the first sums of a block of columns are added to.
void load_bias(const Product& p, std::int64_t column, std::int64_t columns, float* out) {
  for (std::int64_t j = 0; j < columns; ++j) {
    out[j] = p.bias == nullptr ? 0 : element(p.bias, p.b.dtype, column + j);
  }
}

// This thread's part of block += a[:, k..] b[k.., :] from the packed b.
void multiply(const GemmForm& form, const Product& p, const Block& block, const Chunk& chunk,
              const std::byte* packed_b, std::byte* packed_a) {
  const bool adds = chunk.k > 0 || p.into == Into::kAdd;
  const std::int64_t padded = round_up(chunk.depth, form.depth_unit);
  for (std::int64_t row = block.my_rows.begin; row < block.my_rows.end; row += form.rows) {
    const std::int64_t rows = std::min(form.rows, block.my_rows.end - row);
    form.pack_a(p.a, block.row + row, rows, chunk.k, chunk.depth, packed_a);
    const std::int64_t column = block.my_columns.begin;
    float* sums = block.sums + row * block.sums_stride + column;
    PackedProduct product = {.rows = rows,
                             .columns = block.my_columns.end - column,
                             .depth = chunk.depth,
                             .a = packed_a,
                             .b = packed_b + column * padded * form.element_bytes,
                             .base = sums,
                             .base_stride = block.sums_stride,
                             .c = reinterpret_cast<std::byte*>(sums),
                             .c_type = DType::kF32,
                             .c_stride = block.sums_stride};
    if (!adds) {
      product.base = block.bias + column;
      product.base_stride = 0;
    }
    if (chunk.is_last) {
      const std::int64_t at = (block.row + row) * p.c_stride + block.column + column;
      product.c = p.c + at * size_of(p.c_type);
      product.c_type = p.c_type;
      product.c_stride = p.c_stride;
    }
    form.multiply(product);
  }
}

// Where this thread's part of a block lies: whole row panels, or column panels when rows are few.
void share_out(const GemmForm& form, std::int64_t rows, int thread, int threads, Block& block) {
  block.my_rows = {0, rows};
  block.my_columns = {0, block.columns};
  if (rows >= 4 * form.tile_rows * threads || block.columns < form.tile_columns * threads) {
    block.my_rows = share(rows, threads, thread, form.tile_rows);
  } else {
    block.my_columns = share(block.columns, threads, thread, form.tile_columns);
  }
}

}  // namespace

void Gemm::run(const Product& p) {
  const bool is_rounded = p.c_type != DType::kF32;
  ORTHANT_CHECK(!is_rounded || p.into == Into::kSet, "a product cannot be added to {}",
                name_of(p.c_type));
  // Chunks of equal depth; one of depth 0 when there is nothing to add.
  const std::int64_t chunks = std::max<std::int64_t>(1, (p.K + form_.depth - 1) / form_.depth);
  const std::int64_t depth =
      round_up((p.K + chunks - 1) / chunks, std::max<std::int64_t>(8, form_.depth_unit));
  const std::int64_t rows_at_once = is_rounded && chunks > 1 ? form_.sum_rows : p.M;
  const bool is_small = p.M * p.N * p.K < (64 << 10);
  on_threads(is_small ? 1 : num_threads_, [&](int thread, int threads) {
    std::byte* a = bytes_at(buffers_->a[static_cast<std::size_t>(thread)]);
    float* bias = buffers_->bias[static_cast<std::size_t>(thread)].data();
    int turn = 0;
    for (std::int64_t column = 0; column < p.N; column += form_.columns) {
      for (std::int64_t row = 0; row < p.M; row += rows_at_once) {
        Block block{.row = row,
                    .column = column,
                    .columns = std::min(form_.columns, p.N - column),
                    .my_rows = {},
                    .my_columns = {},
                    .bias = bias,
                    .sums = buffers_->sums.data(),
                    .sums_stride = form_.columns};
        if (!is_rounded) {
          block.sums = reinterpret_cast<float*>(p.c) + row * p.c_stride + column;
          block.sums_stride = p.c_stride;
        }
        load_bias(p, column, block.columns, bias);
        share_out(form_, std::min(rows_at_once, p.M - row), thread, threads, block);
        const Range my_panels = share(block.columns, threads, thread, form_.tile_columns);
        for (std::int64_t i = 0; i < chunks; ++i) {
          const std::int64_t k = std::min(i * depth, p.K);
          const Chunk chunk{.k = k, .depth = std::min(depth, p.K - k), .is_last = i + 1 == chunks};
          // Two buffers in turn: one barrier between packing and use is enough.
          std::byte* b = bytes_at(buffers_->b[turn++ % 2]);
          const std::int64_t padded = round_up(chunk.depth, form_.depth_unit);
          form_.pack_b(p.b, column + my_panels.begin, my_panels.end - my_panels.begin, k,
                       chunk.depth, b + my_panels.begin * padded * form_.element_bytes);
          if (threads > 1) meet(buffers_.get());
          multiply(form_, p, block, chunk, b, a);
        }
      }
    }
  });
}

}  // namespace orthant::cpu
