#include "ops/cpu/gemm.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "ops/cpu/gemm_pack.h"
#include "ops/cpu/gemm_tile.h"
#include "ops/cpu/parallel.h"

namespace orthant::cpu {
namespace {

// Measured best on a Zen 3 for the layers of GPT-2 124M; 256 to 384 deep and 384 to 1536 wide lie
// within a tenth.
constexpr std::int64_t kDepth = 256;    // of a packed block: a panel of b fits the L1 cache
constexpr std::int64_t kRows = 96;      // of a packed block of a: fits the L2 cache
constexpr std::int64_t kColumns = 768;  // of a packed block of b: fits the L3 cache
constexpr std::int64_t kSumRows = 384;  // of the f32 sums of a result that is rounded
constexpr std::int64_t kSlack = 16;     // what packing may write past the end

// c tile (rows x columns) = base + product of panels a [depth][6] and b [depth][16].
inline void tile(std::int64_t depth, const float* a, const float* b, const float* base,
                 std::int64_t base_stride, float* c, std::int64_t stride, int rows, int columns) {
  for (int i = 0; i < rows; ++i) {
    _mm_prefetch(reinterpret_cast<const char*>(c + i * stride), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(c + i * stride + columns - 1), _MM_HINT_T0);
  }
  const Tile sums = tile_product<1, kTileRows>(depth, a, b, kTileColumns);
  if (columns == kTileColumns && rows == kTileRows) {
    store_sum(sums, base, base_stride, c, stride);
  } else {
    store_sum_part(sums, base, base_stride, c, stride, rows, columns);
  }
}

template <int R>
void pack(const Matrix& from, bool rows_are_contiguous, std::int64_t row, std::int64_t k,
          std::int64_t rows, std::int64_t depth, float* out) {
  const auto packed = [&](const auto* data) {
    if (rows_are_contiguous) {
      pack_columns<R>(data + k * from.stride + row, from.stride, rows, depth, out);
    } else {
      pack_rows<R>(data + row * from.stride + k, from.stride, rows, depth, out);
    }
  };
  switch (from.dtype) {
    case DType::kBF16: return packed(reinterpret_cast<const BFloat16*>(from.data));
    case DType::kF16: return packed(reinterpret_cast<const Half*>(from.data));
    default: return packed(reinterpret_cast<const float*>(from.data));
  }
}

}  // namespace

struct Gemm::Buffers {
  AlignedFloats b[2] = {AlignedFloats(kDepth * kColumns + kSlack),
                        AlignedFloats(kDepth* kColumns + kSlack)};
  AlignedFloats sums = AlignedFloats(kSumRows * kColumns);
  std::vector<AlignedFloats> a;  // one for each thread
};

Gemm::Gemm(int num_threads) : num_threads_(num_threads), buffers_(std::make_unique<Buffers>()) {
  for (int thread = 0; thread < num_threads; ++thread) {
    buffers_->a.emplace_back(kDepth * kRows + kSlack);
  }
}

Gemm::~Gemm() = default;

namespace {

// One block of columns and rows of c, and what of it is this thread's.
struct Block {
  std::int64_t row;     // of c
  std::int64_t column;  // of c
  std::int64_t columns;
  Range my_rows;  // within the block
  Range my_columns;
  float* c;  // f32 sums of the block
  std::int64_t c_stride;
};

float element(const std::byte* data, DType dtype, std::int64_t at) {
  switch (dtype) {
    case DType::kBF16: return value_of(reinterpret_cast<const BFloat16*>(data)[at]);
    case DType::kF16: return value_of(reinterpret_cast<const Half*>(data)[at]);
    default: return reinterpret_cast<const float*>(data)[at];
  }
}

// What the first sums of a panel of columns are added to.
void load_bias(const Product& p, std::int64_t column, int columns, float* out) {
  for (int j = 0; j < kTileColumns; ++j) {
    out[j] = p.bias != nullptr && j < columns ? element(p.bias, p.b.dtype, column + j) : 0;
  }
}

// This thread's part of block += a[:, k..] b[k.., :] from the packed b.
void multiply(const Product& p, const Block& block, std::int64_t k, std::int64_t depth,
              const float* packed_b, float* packed_a) {
  const bool add = k > 0 || p.into == Into::kAdd;
  for (std::int64_t row = block.my_rows.begin; row < block.my_rows.end; row += kRows) {
    const std::int64_t rows = std::min(kRows, block.my_rows.end - row);
    pack<kTileRows>(p.a, p.a.transposed, block.row + row, k, rows, depth, packed_a);
    for (std::int64_t column = block.my_columns.begin; column < block.my_columns.end;
         column += kTileColumns) {
      const int columns =
          static_cast<int>(std::min<std::int64_t>(kTileColumns, block.my_columns.end - column));
      alignas(32) float bias[kTileColumns];
      if (!add) load_bias(p, block.column + column, columns, bias);
      for (std::int64_t i = 0; i < rows; i += kTileRows) {
        float* c = block.c + (row + i) * block.c_stride + column;
        tile(depth, packed_a + i * depth, packed_b + column * depth, add ? c : bias,
             add ? block.c_stride : 0, c, block.c_stride,
             static_cast<int>(std::min<std::int64_t>(kTileRows, rows - i)), columns);
      }
    }
  }
}

template <class T>
void round_block(const Product& p, const Block& block) {
  const std::int64_t n = block.my_columns.end - block.my_columns.begin;
  const std::int64_t column = block.column + block.my_columns.begin;
  for (std::int64_t row = block.my_rows.begin; row < block.my_rows.end; ++row) {
    const float* from = block.c + row * block.c_stride + block.my_columns.begin;
    T* to = reinterpret_cast<T*>(p.c) + (block.row + row) * p.c_stride + column;
    for_vectors(n,
                [&](std::int64_t i, auto lanes) { store(to + i, load(from + i, lanes), lanes); });
  }
}

// Where this thread's part of a block lies: whole row panels, or column panels when rows are few.
Block place_block(const Product& p, std::int64_t row, std::int64_t rows, std::int64_t column,
                  float* sums, int thread, int threads) {
  Block block{.row = row,
              .column = column,
              .columns = std::min(kColumns, p.N - column),
              .my_rows = {0, rows},
              .my_columns = {},
              .c = sums,
              .c_stride = kColumns};
  if (p.c_type == DType::kF32) {
    block.c = reinterpret_cast<float*>(p.c) + row * p.c_stride + column;
    block.c_stride = p.c_stride;
  }
  block.my_columns = {0, block.columns};
  if (rows >= 4 * kTileRows * threads) {
    block.my_rows = share(rows, threads, thread, kTileRows);
  } else {
    block.my_columns = share(block.columns, threads, thread, kTileColumns);
  }
  return block;
}

}  // namespace

void Gemm::run(const Product& p) {
  const bool is_rounded = p.c_type != DType::kF32;
  ORTHANT_CHECK(!is_rounded || p.into == Into::kSet, "a product cannot be added to {}",
                name_of(p.c_type));
  const std::int64_t rows_at_once = is_rounded ? kSumRows : p.M;
  // Chunks of equal depth; one of depth 0 when there is nothing to add.
  const std::int64_t chunks = std::max<std::int64_t>(1, (p.K + kDepth - 1) / kDepth);
  const std::int64_t depth = ((p.K + chunks - 1) / chunks + 7) / 8 * 8;
  const bool is_small = p.M * p.N * p.K < (64 << 10);
  on_threads(is_small ? 1 : num_threads_, [&](int thread, int threads) {
    float* a = buffers_->a[static_cast<std::size_t>(thread)].data();
    int turn = 0;
    for (std::int64_t column = 0; column < p.N; column += kColumns) {
      for (std::int64_t row = 0; row < p.M; row += rows_at_once) {
        const std::int64_t rows = std::min(rows_at_once, p.M - row);
        const Block block =
            place_block(p, row, rows, column, buffers_->sums.data(), thread, threads);
        const Range my_panels = share(block.columns, threads, thread, kTileColumns);
        for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
          const std::int64_t k = std::min(chunk * depth, p.K);
          const std::int64_t here = std::min(depth, p.K - k);
          // Two buffers in turn: one barrier between packing and use is enough.
          float* b = buffers_->b[turn++ % 2].data();
          pack<kTileColumns>(p.b, !p.b.transposed, column + my_panels.begin, k,
                             my_panels.end - my_panels.begin, here, b + my_panels.begin * here);
          if (threads > 1) {
#pragma omp barrier
          }
          multiply(p, block, k, here, b, a);
        }
        if (p.c_type == DType::kBF16) round_block<BFloat16>(p, block);
        if (p.c_type == DType::kF16) round_block<Half>(p, block);
      }
    }
  });
}

}  // namespace orthant::cpu
