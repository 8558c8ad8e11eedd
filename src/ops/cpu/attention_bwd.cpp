// Attention backward: scores are computed again, block by block. One thread owns all heads of a
// (sequence, group), so that gradients of keys and values are added in a fixed order: heads, then
// queries.
#include <cmath>

#include "ops/cpu/attention_blocks.h"
#include "ops/cpu/backend.h"

namespace orthant::cpu::ORTHANT_LEVEL {
namespace {

constexpr std::int64_t kSide =
    3 * kTileColumns;                   // queries and keys of a block of scores: eight panels
constexpr std::int64_t kQueries = 288;  // at most, that stay packed while the keys pass by

// One query head.
template <class T>
struct Head {
  Rows<const T> q;
  Rows<const T> k;
  Rows<const T> v;
  Rows<const T> o;
  Rows<const T> d_o;
  Rows<T> dq;
  const float* lse;
  float* dk;  // [S,D]
  float* dv;  // [S,D]
  std::int64_t S;
  std::int64_t D;
  HeadRule rule;
};

struct Blocks {
  // Of the packed queries.
  float* q_panels;    // panels of kTileRows queries
  float* q;           // [queries, padded D]
  float* d_o_panels;  // panels of kTileRows queries
  float* d_o;         // [queries, padded D]
  float* dq;          // [queries, padded D]
  float* lse;         // [queries]
  float* delta;       // [queries]: sum over d of do * o
  // Of one block of keys.
  float* k_panels;  // panels of kTileColumns keys
  float* v_panels;  // panels of kTileColumns keys
  float* k;         // [kSide, padded D]
  // Of one block of scores.
  float* p;   // [kSide, kSide]
  float* ds;  // [kSide, kSide]
};

std::int64_t queries_at_once(std::int64_t D) {
  const std::int64_t fitting = kQueries * 64 / round_up(D, kTileColumns);
  return std::clamp<std::int64_t>(fitting / kSide * kSide, kSide, kQueries);
}

Blocks carve(float* scratch, std::int64_t D) {
  const std::int64_t padded = round_up(D, kTileColumns);
  const std::int64_t rows = queries_at_once(D);
  Carver carver(scratch);
  return {.q_panels = carver.take(rows * D + kLanes),
          .q = carver.take(rows * padded),
          .d_o_panels = carver.take(rows * D + kLanes),
          .d_o = carver.take(rows * padded),
          .dq = carver.take(rows * padded),
          .lse = carver.take(rows),
          .delta = carver.take(rows),
          .k_panels = carver.take(kSide * D + kLanes),
          .v_panels = carver.take(kSide * D + kLanes),
          .k = carver.take(kSide * padded),
          .p = carver.take(kSide * kSide),
          .ds = carver.take(kSide * kSide)};
}

// Where a block of scores lies.
struct Place {
  std::int64_t row;    // of the block, among the packed queries
  std::int64_t query;  // position of the block's first query
  std::int64_t rows;
  std::int64_t key;  // position of the block's first key
  std::int64_t keys;
  bool is_diagonal() const { return query == key; }
  // Keys that the panel of queries from `panel` on can see.
  std::int64_t visible(std::int64_t panel) const {
    return is_diagonal() ? std::min(kSide, panel + kTileRows) : kSide;
  }
};

template <class T>
void pack_queries(const Head<T>& head, const Blocks& blocks, std::int64_t first,
                  std::int64_t rows) {
  const std::int64_t D = head.D;
  const std::int64_t padded = round_up(D, kTileColumns);
  const std::int64_t all_rows = round_up(rows, kTileRows);
  copy_rows(head.q, first, rows, D, all_rows, padded, blocks.q);
  copy_rows(head.d_o, first, rows, D, all_rows, padded, blocks.d_o);
  pack_rows<kTileRows>(blocks.q, padded, all_rows, D, blocks.q_panels);
  pack_rows<kTileRows>(blocks.d_o, padded, all_rows, D, blocks.d_o_panels);
  std::fill(blocks.dq, blocks.dq + all_rows * padded, 0.0F);
  for (std::int64_t i = 0; i < rows; ++i) {
    const T* o = head.o.at(first + i);
    const float* d_o = blocks.d_o + i * padded;
    Floats total = zero();
    for_vectors(D, [&](std::int64_t d, auto lanes) {
      total = fma(load(o + d, lanes), load(d_o + d, lanes), total);
    });
    blocks.delta[i] = sum(total);
    blocks.lse[i] = head.lse[first + i];
  }
}

template <class T>
void pack_keys(const Head<T>& head, const Blocks& blocks, std::int64_t key, std::int64_t keys) {
  const std::int64_t D = head.D;
  const std::int64_t padded = round_up(D, kTileColumns);
  copy_rows(head.k, key, keys, D, kSide, padded, blocks.k);
  pack_rows<kTileColumns>(blocks.k, padded, kSide, D, blocks.k_panels);
  pack_rows<kTileColumns>(head.v.at(key), head.v.stride, keys, D, blocks.v_panels);
  // Panels of keys that do not exist.
  const std::int64_t packed = round_up(keys, kTileColumns);
  std::fill(blocks.v_panels + packed * D, blocks.v_panels + kSide * D, 0.0F);
}

// p = q k^T and ds = do v^T, as they come from the products.
void multiply_scores(const Blocks& blocks, const Place& at, std::int64_t D) {
  for (std::int64_t panel = 0; panel < at.rows; panel += kTileRows) {
    const std::int64_t rows = (at.row + panel) * D;
    for (std::int64_t j = 0; j < at.visible(panel); j += kTileColumns) {
      const std::int64_t to = panel * kSide + j;
      store_tile(tile_product<1, kTileRows>(D, blocks.q_panels + rows, blocks.k_panels + j * D,
                                            kTileColumns),
                 blocks.p + to, kSide);
      store_tile(tile_product<1, kTileRows>(D, blocks.d_o_panels + rows, blocks.v_panels + j * D,
                                            kTileColumns),
                 blocks.ds + to, kSide);
    }
  }
}

// p becomes the probabilities that met v, ds the gradient of q k^T.
void differentiate_softmax(const HeadRule& rule, const Blocks& blocks, const Place& at) {
  alignas(64) std::uint32_t words[kSide + 2 * kWordsAtOnce];
  const Floats scale = splat(rule.scale);
  for (std::int64_t i = 0; i < at.rows; ++i) {
    float* p = blocks.p + i * kSide;
    float* ds = blocks.ds + i * kSide;
    const std::int64_t end = round_up(at.visible(i / kTileRows * kTileRows), kTileColumns);
    const std::int64_t query = at.query + i;
    const std::int64_t seen = at.is_diagonal() ? i + 1 : kSide;
    const std::int64_t hidden = rule.first_key(query) - at.key;
    const Floats lse = splat(blocks.lse[at.row + i]);
    const Floats delta = splat(blocks.delta[at.row + i]);
    const std::uint32_t* word = nullptr;
    if (rule.drops) {
      word = rule.dropout.words(
          rule.first_element + static_cast<std::uint64_t>(query * rule.S + at.key), end, words);
    }
    for (std::int64_t j = 0; j < end; j += kLanes) {
      Floats q = exp(scaled_scores(load(p + j), rule, at.key + j, query) - lse);
      if (j + kLanes > seen) q = only(lanes_below(seen - j), q);
      if (j < hidden) q = select(lanes_below(hidden - j), zero(), q);
      Floats d = load(ds + j);
      Floats dropped = q;
      if (rule.drops) {
        const Floats factor = rule.dropout.factors(word + j);
        dropped = q * factor;
        d = d * factor;
      }
      store(p + j, dropped);
      store(ds + j, q * (d - delta) * scale);
    }
  }
}

// to[rows, columns] += sums
inline void add_rows(const float* sums, std::int64_t sums_stride, float* to, std::int64_t stride,
                     std::int64_t rows, std::int64_t columns) {
  for (std::int64_t i = 0; i < rows; ++i) {
    for_vectors(columns, [&](std::int64_t j, auto lanes) {
      float* at = to + i * stride + j;
      store(at, load(at, lanes) + load(sums + i * sums_stride + j, lanes), lanes);
    });
  }
}

// to[rows, columns] += tile, in place.
inline void add_tile(const Tile& tile, float* to, std::int64_t stride, std::int64_t rows,
                     std::int64_t columns) {
  if (rows >= kTileRows && columns >= kTileColumns) {
    store_sum(tile, to, stride, to, stride);
  } else {
    alignas(64) float sums[kTileRows * kTileColumns];
    store_tile(tile, sums, kTileColumns);
    add_rows(sums, kTileColumns, to, stride, std::min<std::int64_t>(rows, kTileRows),
             std::min<std::int64_t>(columns, kTileColumns));
  }
}

// dk += ds^T q, dv += p^T do, dq += ds k
void multiply_gradients(const Blocks& blocks, const Place& at, std::int64_t D, float* dk,
                        float* dv) {
  const std::int64_t padded = round_up(D, kTileColumns);
  for (std::int64_t d = 0; d < D; d += kTileColumns) {
    for (std::int64_t i = 0; i < at.keys; i += kTileRows) {
      // On the diagonal the queries before key i do not see it.
      const std::int64_t first = at.is_diagonal() ? i : 0;
      const std::int64_t from = (at.row + first) * padded + d;
      const std::int64_t scores = first * kSide + i;
      const std::int64_t to = (at.key + i) * D + d;
      add_tile(
          tile_product<1, kSide>(at.rows - first, blocks.p + scores, blocks.d_o + from, padded),
          dv + to, D, at.keys - i, D - d);
      add_tile(tile_product<1, kSide>(at.rows - first, blocks.ds + scores, blocks.q + from, padded),
               dk + to, D, at.keys - i, D - d);
    }
    for (std::int64_t panel = 0; panel < at.rows; panel += kTileRows) {
      float* to = blocks.dq + (at.row + panel) * padded + d;
      add_tile(tile_product<kSide, 1>(at.visible(panel), blocks.ds + panel * kSide, blocks.k + d,
                                      padded),
               to, padded, kTileRows, kTileColumns);
    }
  }
}

template <class T>
void differentiate(const Head<T>& head, float* scratch) {
  const std::int64_t D = head.D;
  const std::int64_t padded = round_up(D, kTileColumns);
  const Blocks blocks = carve(scratch, D);
  const std::int64_t at_once = queries_at_once(D);
  for (std::int64_t first = 0; first < head.S; first += at_once) {
    const std::int64_t rows = std::min(at_once, head.S - first);
    pack_queries(head, blocks, first, rows);
    const std::int64_t first_block = head.rule.first_key(first) / kSide * kSide;
    for (std::int64_t key = first_block; key < first + rows; key += kSide) {
      const std::int64_t keys = std::min(kSide, head.S - key);
      pack_keys(head, blocks, key, keys);
      for (std::int64_t row = std::max<std::int64_t>(0, key - first); row < rows; row += kSide) {
        // Nor do the queries of later documents see these keys.
        if (head.rule.first_key(first + row) >= key + keys) break;
        const Place at{.row = row,
                       .query = first + row,
                       .rows = std::min(kSide, rows - row),
                       .key = key,
                       .keys = keys};
        multiply_scores(blocks, at, D);
        differentiate_softmax(head.rule, blocks, at);
        multiply_gradients(blocks, at, D, head.dk, head.dv);
      }
    }
    // No later block reads these queries: dq may be their memory.
    for (std::int64_t i = 0; i < rows; ++i) {
      T* dq = head.dq.at(first + i);
      for_vectors(D, [&](std::int64_t d, auto lanes) {
        store(dq + d, load(blocks.dq + i * padded + d), lanes);
      });
    }
  }
}

template <class T>
void write_rows(const float* from, const Rows<T>& to, std::int64_t S, std::int64_t D) {
  for (std::int64_t i = 0; i < S; ++i) {
    for_vectors(D, [&](std::int64_t d, auto lanes) {
      store(to.at(i) + d, load(from + i * D + d, lanes), lanes);
    });
  }
}

// All heads of group g of sequence b. `sums` is f32 [2,S,D], of keys and values.
template <class T>
void differentiate_group(const AttentionBwd& a, std::int64_t b, std::int64_t g, float* sums,
                         float* scratch) {
  const AttentionShape& n = a.shape;
  const std::int64_t width = (n.H + 2 * n.G) * n.D;
  const T* qkv = a.qkv.ptr<const T>() + b * n.S * width;
  T* dqkv = a.dqkv.ptr<T>() + b * n.S * width;
  float* dk = sums;
  float* dv = sums + n.S * n.D;
  std::fill(sums, sums + 2 * n.S * n.D, 0.0F);
  const std::int64_t k = (n.H + g) * n.D;
  const std::int64_t v = k + n.G * n.D;
  for (std::int64_t h = g * (n.H / n.G); h < (g + 1) * (n.H / n.G); ++h) {
    const std::int64_t o = (b * n.S * n.H + h) * n.D;
    differentiate(Head<T>{.q = {qkv + h * n.D, width},
                          .k = {qkv + k, width},
                          .v = {qkv + v, width},
                          .o = {a.o.ptr<const T>() + o, n.H * n.D},
                          .d_o = {a.do_.ptr<const T>() + o, n.H * n.D},
                          .dq = {dqkv + h * n.D, width},
                          .lse = a.lse.ptr<const float>() + (b * n.H + h) * n.S,
                          .dk = dk,
                          .dv = dv,
                          .S = n.S,
                          .D = n.D,
                          .rule = head_rule(a, b, h)},
                  scratch);
  }
  write_rows(dk, Rows<T>{dqkv + k, width}, n.S, n.D);
  write_rows(dv, Rows<T>{dqkv + v, width}, n.S, n.D);
}

}  // namespace

void CpuOps::exec(const AttentionBwd& a, const Tensor& workspace) {
  const AttentionShape& n = a.shape;
  check_head_width(AttentionBwd::kName, n);
  with_type(a.qkv.dtype, AttentionBwd::kName, [&](auto element) {
    on_threads(num_threads_, [&](int thread, int /*threads*/) {
#pragma omp for schedule(dynamic)
      for (std::int64_t task = 0; task < n.B * n.G; ++task) {
        differentiate_group<decltype(element)>(a, task / n.G, task % n.G,
                                               workspace.ptr<float>() + task * 2 * n.S * n.D,
                                               scratch(thread));
      }
    });
  });
}

}  // namespace orthant::cpu::ORTHANT_LEVEL
