// Attention backward of bf16 in tiles of AMX: scores are computed again, block by block;
// probabilities and their gradients are rounded to bf16 before they meet other factors, sums are
// f32. One thread owns all heads of a (sequence, group), so that gradients of keys and values are
// added in a fixed order: heads, then queries.
#include "ops/cpu/amx_ops.h"
#include "ops/cpu/attention_panels.h"
#include "ops/cpu/parallel.h"

namespace orthant::cpu::avx512 {
namespace {

// One query head.
struct Head {
  Rows<const BFloat16> q;
  Rows<const BFloat16> k;
  Rows<const BFloat16> v;
  Rows<const BFloat16> o;
  Rows<const BFloat16> d_o;
  Rows<BFloat16> dq;
  const float* lse;
  float* dk;  // [S,D]
  float* dv;  // [S,D]
  std::int64_t S;
  std::int64_t D;
  HeadRule rule;
};

struct Blocks {
  Blocks(float* scratch, std::int64_t D) {
    PanelCarver carver(scratch);
    for (std::byte** part : {&q, &d_o, &k, &v}) {
      *part = carver.panels(kBlock, D);
    }
    for (std::byte** part : {&q_lines, &d_o_lines, &k_lines}) {
      *part = carver.panels(D, kBlock);
    }
    for (std::byte** part : {&p_columns, &ds_columns, &ds_rows}) {
      *part = carver.panels(kBlock, kBlock);
    }
    p = carver.halves(kBlock * kBlock);
    ds = carver.halves(kBlock * kBlock);
    scores = carver.floats(kPanel * kBlock);
    slopes = carver.floats(kPanel * kBlock);
    product = carver.floats(kPanel * kPanel);
    dq = carver.floats(kBlock * round_up(D, kPanel));
    lse = carver.floats(kBlock);
    delta = carver.floats(kBlock);
  }
  // Of a block of queries: operands over their width, and over the queries.
  std::byte* q;
  std::byte* d_o;
  std::byte* q_lines;
  std::byte* d_o_lines;
  float* dq;     // [kBlock, padded D]
  float* lse;    // [kBlock]
  float* delta;  // [kBlock]: sum over d of do * o
  // Of a block of keys.
  std::byte* k;
  std::byte* v;
  std::byte* k_lines;
  // Of a panel of queries and a block of keys.
  float* scores;   // [kPanel, kBlock]: q k^T
  float* slopes;   // [kPanel, kBlock]: do v^T
  float* product;  // [kPanel, kPanel]
  // Of both blocks.
  BFloat16* p;            // [queries, kBlock]: the probabilities that met v
  BFloat16* ds;           // [queries, kBlock]: the gradients of q k^T
  std::byte* p_columns;   // panels of keys
  std::byte* ds_columns;  // panels of keys
  std::byte* ds_rows;     // panels of queries
};

// Where a block of scores lies.
struct Place {
  std::int64_t query;  // position of the first query
  std::int64_t rows;
  std::int64_t key;  // position of the first key
  std::int64_t keys;
  // Keys that the panel of queries from `panel` on can see.
  std::int64_t visible(std::int64_t panel) const {
    return std::min(keys, query + std::min(panel + kPanel, rows) - key);
  }
};

Matrix block_matrix(const BFloat16* data) {
  return {reinterpret_cast<const std::byte*>(data), DType::kBF16, kBlock, false};
}

void pack_queries(const Head& head, const Blocks& blocks, std::int64_t first, std::int64_t rows) {
  const std::int64_t D = head.D;
  pack_rows_of<Operand::kRows>(head.q, first, rows, D, blocks.q);
  pack_rows_of<Operand::kRows>(head.d_o, first, rows, D, blocks.d_o);
  pack_lines_of(head.q, first, rows, D, blocks.q_lines);
  pack_lines_of(head.d_o, first, rows, D, blocks.d_o_lines);
  std::fill(blocks.dq, blocks.dq + kBlock * round_up(D, kPanel), 0.0F);
  for (std::int64_t i = 0; i < rows; ++i) {
    const BFloat16* o = head.o.at(first + i);
    const BFloat16* d_o = head.d_o.at(first + i);
    Floats total = zero();
    for_vectors(D, [&](std::int64_t d, auto lanes) {
      total = fma(load(o + d, lanes), load(d_o + d, lanes), total);
    });
    blocks.delta[i] = sum(total);
    blocks.lse[i] = head.lse[first + i];
  }
}

// Row `panel` + r of p and ds, from the scores of a panel. What a query does not see is zero.
void differentiate_row(const HeadRule& rule, const Blocks& blocks, const Place& at,
                       std::int64_t panel, std::int64_t r) {
  const std::int64_t row = panel + r;
  const std::int64_t query = at.query + row;
  const std::int64_t seen = row < at.rows ? std::min(at.keys, query - at.key + 1) : 0;
  BFloat16* p = blocks.p + row * kBlock;
  BFloat16* ds = blocks.ds + row * kBlock;
  const std::int64_t hidden = rule.first_key(query) - at.key;
  const Floats scale = splat(rule.scale);
  const Floats lse = splat(seen > 0 ? blocks.lse[row] : 0);
  const Floats delta = splat(seen > 0 ? blocks.delta[row] : 0);
  alignas(64) std::uint32_t words[kBlock + 2 * kWordsAtOnce];
  const std::uint32_t* word = nullptr;
  if (rule.drops && seen > 0) {
    word = rule.dropout.words(
        rule.first_element + static_cast<std::uint64_t>(query * rule.S + at.key), seen, words);
  }
  std::int64_t j = 0;
  for (; j < seen; j += kLanes) {
    const Floats scores = load(blocks.scores + r * kBlock + j);
    Floats q = exp(scaled_scores(scores, rule, at.key + j, query) - lse);
    Floats d = load(blocks.slopes + r * kBlock + j);
    if (j + kLanes > seen) q = only(lanes_below(seen - j), q);
    if (j < hidden) q = select(lanes_below(hidden - j), zero(), q);
    Floats dropped = q;
    if (rule.drops) {
      const Floats factor = rule.dropout.factors(word + j);
      dropped = q * factor;
      d = d * factor;
    }
    store(p + j, dropped);
    store(ds + j, q * (d - delta) * scale);
  }
  for (; j < round_up(at.keys, kPanel); j += kLanes) {
    store(p + j, zero());
    store(ds + j, zero());
  }
}

// p and ds of both blocks.
void differentiate_softmax(const HeadRule& rule, const Blocks& blocks, const Place& at,
                           std::int64_t D) {
  for (std::int64_t panel = 0; panel < at.rows; panel += kPanel) {
    for (std::int64_t j = 0; j < at.visible(panel); j += kPanel) {
      multiply_panels(steps_of(D), blocks.q + panel_at(panel, 0, D), blocks.k + panel_at(j, 0, D),
                      blocks.scores + j, kBlock);
      multiply_panels(steps_of(D), blocks.d_o + panel_at(panel, 0, D), blocks.v + panel_at(j, 0, D),
                      blocks.slopes + j, kBlock);
    }
    for (std::int64_t r = 0; r < kPanel; ++r) {
      differentiate_row(rule, blocks, at, panel, r);
    }
  }
}

// to[rows, columns] += sums [kPanel, kPanel]
void add_product(const float* sums, float* to, std::int64_t stride, std::int64_t rows,
                 std::int64_t columns) {
  for (std::int64_t i = 0; i < std::min(rows, kPanel); ++i) {
    for_vectors(std::min(columns, kPanel), [&](std::int64_t j, auto lanes) {
      float* at = to + i * stride + j;
      store(at, load(at, lanes) + load(sums + i * kPanel + j, lanes), lanes);
    });
  }
}

// dk += ds^T q, dv += p^T do, dq += ds k
void multiply_gradients(const Head& head, const Blocks& blocks, const Place& at) {
  const std::int64_t D = head.D;
  const std::int64_t padded = round_up(D, kPanel);
  const Matrix p = block_matrix(blocks.p);
  const Matrix ds = block_matrix(blocks.ds);
  pack<Operand::kRows>(p, false, 0, at.keys, 0, at.rows, blocks.p_columns);
  pack<Operand::kRows>(ds, false, 0, at.keys, 0, at.rows, blocks.ds_columns);
  pack<Operand::kRows>(ds, true, 0, at.rows, 0, at.keys, blocks.ds_rows);
  for (std::int64_t d = 0; d < D; d += kPanel) {
    for (std::int64_t i = 0; i < at.keys; i += kPanel) {
      // Queries before key i do not see it.
      const std::int64_t first = std::max<std::int64_t>(0, at.key + i - at.query) / kStep * kStep;
      const std::int64_t steps = steps_of(at.rows - first);
      const std::int64_t left = panel_at(i, first, at.rows);
      const std::int64_t right = panel_at(d, first, at.rows);
      const std::int64_t to = (at.key + i) * D + d;
      multiply_panels(steps, blocks.p_columns + left, blocks.d_o_lines + right, blocks.product);
      add_product(blocks.product, head.dv + to, D, at.keys - i, D - d);
      multiply_panels(steps, blocks.ds_columns + left, blocks.q_lines + right, blocks.product);
      add_product(blocks.product, head.dk + to, D, at.keys - i, D - d);
    }
    for (std::int64_t panel = 0; panel < at.rows; panel += kPanel) {
      multiply_panels(steps_of(at.visible(panel)), blocks.ds_rows + panel_at(panel, 0, at.keys),
                      blocks.k_lines + panel_at(d, 0, at.keys), blocks.product);
      add_product(blocks.product, blocks.dq + panel * padded + d, padded, kPanel, kPanel);
    }
  }
}

void differentiate(const Head& head, float* scratch) {
  const std::int64_t D = head.D;
  const Blocks blocks(scratch, D);
  for (std::int64_t first = 0; first < head.S; first += kBlock) {
    const std::int64_t rows = std::min(kBlock, head.S - first);
    pack_queries(head, blocks, first, rows);
    const std::int64_t first_block = head.rule.first_key(first) / kBlock * kBlock;
    for (std::int64_t key = first_block; key < first + rows; key += kBlock) {
      const std::int64_t keys = std::min(kBlock, head.S - key);
      pack_rows_of<Operand::kPairs>(head.k, key, keys, D, blocks.k);
      pack_rows_of<Operand::kPairs>(head.v, key, keys, D, blocks.v);
      pack_lines_of(head.k, key, keys, D, blocks.k_lines);
      const Place at{.query = first, .rows = rows, .key = key, .keys = keys};
      differentiate_softmax(head.rule, blocks, at, D);
      multiply_gradients(head, blocks, at);
    }
    // No later block reads these queries: dq may be their memory.
    for (std::int64_t i = 0; i < rows; ++i) {
      BFloat16* dq = head.dq.at(first + i);
      const float* from = blocks.dq + i * round_up(D, kPanel);
      for_vectors(D,
                  [&](std::int64_t d, auto lanes) { store(dq + d, load(from + d, lanes), lanes); });
    }
  }
}

void write_rows(const float* from, const Rows<BFloat16>& to, std::int64_t S, std::int64_t D) {
  for (std::int64_t i = 0; i < S; ++i) {
    for_vectors(D, [&](std::int64_t d, auto lanes) {
      store(to.at(i) + d, load(from + i * D + d, lanes), lanes);
    });
  }
}

// All heads of group g of sequence b. `sums` is f32 [2,S,D], of keys and values.
void differentiate_group(const AttentionBwd& a, std::int64_t b, std::int64_t g, float* sums,
                         float* scratch) {
  const AttentionShape& n = a.shape;
  const std::int64_t width = (n.H + 2 * n.G) * n.D;
  const BFloat16* qkv = a.qkv.ptr<const BFloat16>() + b * n.S * width;
  BFloat16* dqkv = a.dqkv.ptr<BFloat16>() + b * n.S * width;
  float* dk = sums;
  float* dv = sums + n.S * n.D;
  std::fill(sums, sums + 2 * n.S * n.D, 0.0F);
  const std::int64_t k = (n.H + g) * n.D;
  const std::int64_t v = k + n.G * n.D;
  for (std::int64_t h = g * (n.H / n.G); h < (g + 1) * (n.H / n.G); ++h) {
    const std::int64_t o = (b * n.S * n.H + h) * n.D;
    differentiate({.q = {qkv + h * n.D, width},
                   .k = {qkv + k, width},
                   .v = {qkv + v, width},
                   .o = {a.o.ptr<const BFloat16>() + o, n.H * n.D},
                   .d_o = {a.do_.ptr<const BFloat16>() + o, n.H * n.D},
                   .dq = {dqkv + h * n.D, width},
                   .lse = a.lse.ptr<const float>() + (b * n.H + h) * n.S,
                   .dk = dk,
                   .dv = dv,
                   .S = n.S,
                   .D = n.D,
                   .rule = head_rule(a, b, h)},
                  scratch);
  }
  write_rows(dk, {dqkv + k, width}, n.S, n.D);
  write_rows(dv, {dqkv + v, width}, n.S, n.D);
}

}  // namespace

void AmxOps::exec(const AttentionBwd& a, const Tensor& workspace) {
  const AttentionShape& n = a.shape;
  if (a.qkv.dtype != DType::kBF16) return CpuOps::exec(a, workspace);
  check_head_width(AttentionBwd::kName, n);
  on_threads(num_threads(), [&](int thread, int /*threads*/) {
    const TilesInUse tiles;
#pragma omp for schedule(dynamic)
    for (std::int64_t task = 0; task < n.B * n.G; ++task) {
      differentiate_group(a, task / n.G, task % n.G, workspace.ptr<float>() + task * 2 * n.S * n.D,
                          scratch(thread));
    }
  });
}

}  // namespace orthant::cpu::avx512
