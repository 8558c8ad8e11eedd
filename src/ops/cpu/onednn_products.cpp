#include "ops/cpu/onednn_products.h"

#include <algorithm>
#include <atomic>
#include <compare>
#include <map>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "ops/cpu/aligned_floats.h"
#include "ops/cpu/onednn.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/vector.h"

namespace orthant::cpu {
namespace {

using ORTHANT_LEVEL::for_vectors;
using ORTHANT_LEVEL::load;
using ORTHANT_LEVEL::on_threads;
using ORTHANT_LEVEL::store;

constexpr std::int64_t kDepth = 1024;  // of operands that are converted to f32

// What oneDNN compiles a primitive for: a tile's product.
struct Key {
  std::int64_t M, N, K;
  std::int64_t a_stride, b_stride, c_stride;
  bool a_transposed, b_transposed;
  bool has_bias, adds;
  DType in, out;
  auto operator<=>(const Key&) const = default;
};

dnnl::memory::desc matrix_desc(std::int64_t rows, std::int64_t columns, DType type,
                               std::int64_t stride, bool transposed) {
  const dnnl::memory::dims strides =
      transposed ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1};
  return {{rows, columns}, onednn_type(type), strides};
}

// A primitive, and for each thread the arguments that it runs with.
class Matmul {
 public:
  Matmul(const dnnl::engine& engine, const Key& key, int num_threads) {
    const MatmulShapes shapes = {
        .a = matrix_desc(key.M, key.K, key.in, key.a_stride, key.a_transposed),
        .b = matrix_desc(key.K, key.N, key.in, key.b_stride, key.b_transposed),
        .bias = key.has_bias ? matrix_desc(1, key.N, key.in, key.N, false) : dnnl::memory::desc(),
        .c = matrix_desc(key.M, key.N, key.out, key.c_stride, false)};
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (key.adds) {
      dnnl::post_ops sum;
      sum.append_sum(1.0F);
      attributes.set_post_ops(sum);
    }
    const dnnl::matmul::primitive_desc desc = matmul_desc(engine, shapes, attributes);
    primitive_ = dnnl::matmul(desc);
    scratch_bytes_ = static_cast<std::int64_t>(desc.scratchpad_desc().get_size());
    for (int thread = 0; thread < num_threads; ++thread) {
      args_.push_back(
          {{DNNL_ARG_SRC, dnnl::memory(shapes.a, engine, nullptr)},
           {DNNL_ARG_WEIGHTS, dnnl::memory(shapes.b, engine, nullptr)},
           {DNNL_ARG_DST, dnnl::memory(shapes.c, engine, nullptr)},
           {DNNL_ARG_SCRATCHPAD, dnnl::memory(desc.scratchpad_desc(), engine, nullptr)}});
      if (key.has_bias) {
        args_.back().emplace(DNNL_ARG_BIAS, dnnl::memory(shapes.bias, engine, nullptr));
      }
    }
  }

  std::int64_t scratch_bytes() const { return scratch_bytes_; }

  struct Pointers {
    const void* a;
    const void* b;
    const void* bias;
    void* c;
    void* scratch;
  };
  void run(int thread, const dnnl::stream& stream, const Pointers& at) {
    auto& args = args_[static_cast<std::size_t>(thread)];
    const auto set = [&args](int arg, const void* data) {
      args.at(arg).set_data_handle(const_cast<void*>(data));
    };
    set(DNNL_ARG_SRC, at.a);
    set(DNNL_ARG_WEIGHTS, at.b);
    set(DNNL_ARG_DST, at.c);
    set(DNNL_ARG_SCRATCHPAD, at.scratch);
    if (at.bias != nullptr) set(DNNL_ARG_BIAS, at.bias);
    primitive_.execute(stream, args);
  }

 private:
  dnnl::matmul primitive_;
  std::int64_t scratch_bytes_ = 0;
  std::vector<std::unordered_map<int, dnnl::memory>> args_;
};

// Grows at the first use of a larger shape, never shrinks.
struct Scratch {
  AlignedFloats floats = AlignedFloats(0);
  std::int64_t count = 0;
  float* at_least(std::int64_t wanted) {
    if (wanted > count) {
      floats = AlignedFloats(static_cast<std::size_t>(wanted));
      count = wanted;
    }
    return floats.data();
  }
};

// One thread's memory.
struct Workplace {
  Scratch library;
  Scratch a, b, bias, c;  // f32 copies
};

const std::byte* element(const Matrix& matrix, std::int64_t row, std::int64_t column) {
  const std::int64_t at =
      matrix.transposed ? column * matrix.stride + row : row * matrix.stride + column;
  return matrix.data + at * size_of(matrix.dtype);
}

// Rows of a matrix in memory, as f32.
void widen(const std::byte* data, DType type, std::int64_t stride, std::int64_t rows,
           std::int64_t columns, float* to) {
  const auto widened = [&](const auto* from) {
    for (std::int64_t row = 0; row < rows; ++row) {
      for_vectors(columns, [&](std::int64_t i, auto lanes) {
        store(to + row * columns + i, load(from + row * stride + i, lanes), lanes);
      });
    }
  };
  switch (type) {
    case DType::kBF16: return widened(reinterpret_cast<const BFloat16*>(data));
    case DType::kF16: return widened(reinterpret_cast<const Half*>(data));
    default: return widened(reinterpret_cast<const float*>(data));
  }
}

template <class T>
void narrow(const float* from, std::int64_t rows, std::int64_t columns, T* to,
            std::int64_t stride) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for_vectors(columns, [&](std::int64_t i, auto lanes) {
      store(to + row * stride + i, load(from + row * columns + i, lanes), lanes);
    });
  }
}

// How a product is cut: into tiles of the result, and into depths where operands are converted. The
// tiles are those that were measured best at the layers of GPT-2 124M, smaller where there would be
// too few for a dozen threads.
struct Cut {
  explicit Cut(const Product& p)
      : converts(p.a.dtype == DType::kF16 || (p.a.dtype == DType::kBF16 && !onednn_has_bf16())),
        depth(converts ? std::min(p.K, kDepth) : p.K),
        depths((p.K + depth - 1) / depth) {
    constexpr std::int64_t kEnoughTiles = 12;
    cut(p, p.a.transposed ? 256 : 512, p.a.transposed ? 768 : 256);
    std::int64_t& halved = p.a.transposed ? columns : rows;
    while (num_tiles() < kEnoughTiles && halved > 192) {
      halved /= 2;
      cut(p, rows, columns);
    }
  }
  void cut(const Product& p, std::int64_t tile_rows, std::int64_t tile_columns) {
    rows = tile_rows;
    columns = tile_columns;
    row_tiles = (p.M + rows - 1) / rows;
    column_tiles = (p.N + columns - 1) / columns;
  }
  std::int64_t num_tiles() const { return row_tiles * column_tiles; }

  bool converts;
  std::int64_t depth, depths;
  std::int64_t rows = 0, columns = 0;
  std::int64_t row_tiles = 0, column_tiles = 0;
};

// One tile of the result at one depth.
struct Tile {
  Tile(const Product& p, const Cut& cut, std::int64_t tile, std::int64_t depth_index)
      : row(tile / cut.column_tiles * cut.rows),
        column(tile % cut.column_tiles * cut.columns),
        k(depth_index * cut.depth),
        rows(std::min(cut.rows, p.M - row)),
        columns(std::min(cut.columns, p.N - column)),
        depth(std::min(cut.depth, p.K - k)),
        adds(p.into == Into::kAdd || depth_index > 0) {}

  Key key(const Product& p, const Cut& cut) const {
    const bool has_bias = p.bias != nullptr && !adds;
    if (cut.converts) {
      const bool in_place = p.c_type == DType::kF32;
      return {rows,
              columns,
              depth,
              p.a.transposed ? rows : depth,
              p.b.transposed ? depth : columns,
              in_place ? p.c_stride : columns,
              p.a.transposed,
              p.b.transposed,
              has_bias,
              adds,
              DType::kF32,
              DType::kF32};
    }
    return {rows,           columns,        depth,    p.a.stride, p.b.stride, p.c_stride,
            p.a.transposed, p.b.transposed, has_bias, adds,       p.a.dtype,  p.c_type};
  }

  std::int64_t row, column, k;
  std::int64_t rows, columns, depth;
  bool adds;
};

std::byte* result_at(const Product& p, const Tile& tile) {
  return p.c + (tile.row * p.c_stride + tile.column) * size_of(p.c_type);
}

const std::byte* bias_at(const Product& p, const Tile& tile) {
  if (p.bias == nullptr || tile.adds) return nullptr;
  return p.bias + tile.column * size_of(p.b.dtype);
}

Matmul::Pointers direct(const Product& p, const Tile& tile) {
  return {.a = element(p.a, tile.row, tile.k),
          .b = element(p.b, tile.k, tile.column),
          .bias = bias_at(p, tile),
          .c = result_at(p, tile),
          .scratch = nullptr};
}

Matmul::Pointers converted(const Product& p, const Tile& tile, Workplace& place) {
  float* a = place.a.at_least(tile.rows * tile.depth);
  float* b = place.b.at_least(tile.depth * tile.columns);
  const auto widen_part = [](const Matrix& from, std::int64_t row, std::int64_t column,
                             std::int64_t rows, std::int64_t columns, float* to) {
    const std::byte* data = element(from, row, column);
    if (from.transposed) std::swap(rows, columns);
    widen(data, from.dtype, from.stride, rows, columns, to);
  };
  widen_part(p.a, tile.row, tile.k, tile.rows, tile.depth, a);
  widen_part(p.b, tile.k, tile.column, tile.depth, tile.columns, b);
  float* bias = nullptr;
  if (const std::byte* narrow_bias = bias_at(p, tile)) {
    bias = place.bias.at_least(tile.columns);
    widen(narrow_bias, p.b.dtype, tile.columns, 1, tile.columns, bias);
  }
  void* c = p.c_type == DType::kF32
                ? static_cast<void*>(result_at(p, tile))
                : static_cast<void*>(place.c.at_least(tile.rows * tile.columns));
  return {.a = a, .b = b, .bias = bias, .c = c, .scratch = nullptr};
}

// What a converted tile needs; the same for every thread, so that none allocates later.
void reserve(Workplace& place, const Key& key, std::int64_t scratch_bytes, bool converts) {
  place.library.at_least((scratch_bytes + 3) / 4);
  if (!converts) return;
  place.a.at_least(key.M * key.K);
  place.b.at_least(key.K * key.N);
  place.bias.at_least(key.N);
  place.c.at_least(key.M * key.N);
}

void narrow_result(const Product& p, const Tile& tile, const void* sums) {
  const auto* from = static_cast<const float*>(sums);
  std::byte* to = result_at(p, tile);
  if (p.c_type == DType::kBF16) {
    narrow(from, tile.rows, tile.columns, reinterpret_cast<BFloat16*>(to), p.c_stride);
  } else {
    narrow(from, tile.rows, tile.columns, reinterpret_cast<Half*>(to), p.c_stride);
  }
}

}  // namespace

struct OneDnnProducts::State {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<Key, Matmul> matmuls;
  std::vector<Workplace> workplaces;  // one for each thread

  // Makes the primitives of all tiles that are not there yet.
  void prepare(const Product& p, const Cut& cut) {
    for (std::int64_t i = 0; i < cut.num_tiles() * cut.depths; ++i) {
      const Key key = Tile(p, cut, i / cut.depths, i % cut.depths).key(p, cut);
      if (matmuls.contains(key)) continue;
      const auto made =
          matmuls.try_emplace(key, engine, key, static_cast<int>(workplaces.size())).first;
      for (Workplace& place : workplaces) {
        reserve(place, key, made->second.scratch_bytes(), cut.converts);
      }
    }
  }

  void run_tile(const Product& p, const Cut& cut, std::int64_t index, int thread) {
    Workplace& place = workplaces[static_cast<std::size_t>(thread)];
    for (std::int64_t d = 0; d < cut.depths; ++d) {
      const Tile tile(p, cut, index, d);
      Matmul& matmul = matmuls.at(tile.key(p, cut));
      Matmul::Pointers at = cut.converts ? converted(p, tile, place) : direct(p, tile);
      at.scratch = place.library.floats.data();
      matmul.run(thread, stream, at);
      if (d + 1 == cut.depths && at.c != result_at(p, tile)) narrow_result(p, tile, at.c);
    }
  }
};

OneDnnProducts::OneDnnProducts(int num_threads)
    : num_threads_(num_threads),
      state_(std::make_unique<State>()) {
  state_->workplaces.resize(static_cast<std::size_t>(num_threads));
}

OneDnnProducts::~OneDnnProducts() = default;

void OneDnnProducts::run(const Product& p) {
  ORTHANT_CHECK(p.c_type == DType::kF32 || p.into == Into::kSet, "a product cannot be added to {}",
                name_of(p.c_type));
  const OpenMpThreads one(
      1);  // oneDNN itself starts none, neither when it compiles nor when it runs
  const Cut cut(p);
  state_->prepare(p, cut);
  // Threads take tiles as they come: one that is held up by another program delays no other.
  std::atomic<std::int64_t> next = 0;
  on_threads(static_cast<int>(std::min<std::int64_t>(num_threads_, cut.num_tiles())),
             [&](int thread, int /*threads*/) {
               for (std::int64_t index = next++; index < cut.num_tiles(); index = next++) {
                 state_->run_tile(p, cut, index, thread);
               }
             });
}

}  // namespace orthant::cpu
