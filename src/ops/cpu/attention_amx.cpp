// Attention forward of bf16 in tiles of AMX, with an online softmax: probabilities are rounded to
// bf16 before they meet values; sums are f32. The order of sums depends on the shape alone.
#include <cmath>
#include <limits>

#include "ops/cpu/amx_ops.h"
#include "ops/cpu/attention_panels.h"
#include "ops/cpu/parallel.h"

namespace orthant::cpu::avx512 {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

struct Head {
  Rows<const BFloat16> q;
  Rows<const BFloat16> k;
  Rows<const BFloat16> v;
  Rows<BFloat16> o;
  float* lse;  // of each query
  std::int64_t D;
  HeadRule rule;
};

struct Blocks {
  Blocks(float* scratch, std::int64_t D) {
    PanelCarver carver(scratch);
    q = carver.panels(kBlock, D);
    k = carver.panels(kBlock, D);
    v = carver.panels(D, kBlock);
    p = carver.panels(kPanel, kBlock);
    scores = carver.floats(kPanel * kBlock);
    product = carver.floats(kPanel * kPanel);
    sums = carver.floats(kBlock * round_up(D, kPanel));
    highest = carver.floats(kBlock);
    total = carver.floats(kBlock);
    factor = carver.floats(kPanel);
  }
  std::byte* q;
  std::byte* k;
  std::byte* v;
  std::byte* p;    // probabilities of a panel of queries
  float* scores;   // [kPanel, kBlock]
  float* product;  // [kPanel, kPanel]
  float* sums;     // [kBlock, padded D]: sums of p v, not yet divided
  float* highest;  // [kBlock]
  float* total;    // [kBlock]: sum of exponentials
  float* factor;   // [kPanel]: what earlier sums must be multiplied by
};

// Row r of a panel of scores becomes probabilities not yet divided, rounded: sixteen at a time.
void softmax_row(const HeadRule& rule, const Blocks& blocks, std::int64_t panel, std::int64_t r,
                 std::int64_t query, std::int64_t key, std::int64_t visible) {
  const std::int64_t end = round_up(visible, kStep);
  const std::int64_t seen = std::min(visible, query - key + 1);
  const std::int64_t hidden = rule.first_key(query) - key;
  float* row = blocks.scores + r * kBlock;
  Floats peaks = splat(kNone);
  for (std::int64_t j = 0; j < end; j += kLanes) {
    Floats x = scaled_scores(load(row + j), rule, key + j, query);
    if (j + kLanes > seen) x = select(lanes_below(seen - j), x, splat(kNone));
    if (j < hidden) x = select(lanes_below(hidden - j), splat(kNone), x);
    store(row + j, x);
    peaks = max(x, peaks);
  }
  float& highest = blocks.highest[panel + r];
  float& total = blocks.total[panel + r];
  const float before = highest;
  highest = std::max(largest(peaks), before);
  alignas(64) std::uint32_t words[kBlock + 2 * kWordsAtOnce];
  const std::uint32_t* word = nullptr;
  if (rule.drops) {
    word = rule.dropout.words(rule.first_element + static_cast<std::uint64_t>(query * rule.S + key),
                              end, words);
  }
  const Floats shift = shift_of(splat(highest));
  Floats row_total = zero();
  auto* p = reinterpret_cast<BFloat16*>(blocks.p) + r * kStep;
  for (std::int64_t j = 0; j < end; j += kLanes) {
    Floats x = exp(load(row + j) - shift);
    row_total += x;
    if (rule.drops) x = x * rule.dropout.factors(word + j);
    store(p + j / kStep * kPanel * kStep + j % kStep, x);
  }
  alignas(64) float factors[kLanes];
  store(factors, exp(splat(before) - shift));
  blocks.factor[r] = factors[0];
  total = std::fma(total, factors[0], sum(row_total));
}

// A panel of queries, the first at position `query`, against a block of keys.
void attend_panel(const Head& head, const Blocks& blocks, std::int64_t panel, std::int64_t query,
                  std::int64_t key, std::int64_t keys, std::int64_t visible) {
  const std::int64_t D = head.D;
  const std::int64_t padded = round_up(D, kPanel);
  for (std::int64_t j = 0; j < visible; j += kPanel) {
    multiply_panels(steps_of(D), blocks.q + panel_at(panel, 0, D), blocks.k + panel_at(j, 0, D),
                    blocks.scores + j, kBlock);
  }
  for (std::int64_t r = 0; r < kPanel; ++r) {
    softmax_row(head.rule, blocks, panel, r, query + r, key, visible);
  }
  for (std::int64_t d = 0; d < padded; d += kPanel) {
    multiply_panels(steps_of(visible), blocks.p, blocks.v + panel_at(d, 0, keys), blocks.product);
    for (std::int64_t r = 0; r < kPanel; ++r) {
      const Floats factor = splat(blocks.factor[r]);
      float* to = blocks.sums + (panel + r) * padded + d;
      const float* from = blocks.product + r * kPanel;
      store(to, fma(load(to), factor, load(from)));
      store(to + kLanes, fma(load(to + kLanes), factor, load(from + kLanes)));
    }
  }
}

// Queries first .. first + rows - 1.
void attend(const Head& head, std::int64_t first, std::int64_t rows, float* scratch) {
  const std::int64_t D = head.D;
  const std::int64_t padded = round_up(D, kPanel);
  const Blocks blocks(scratch, D);
  std::fill(blocks.sums, blocks.sums + kBlock * padded, 0.0F);
  std::fill(blocks.highest, blocks.highest + kBlock, kNone);
  std::fill(blocks.total, blocks.total + kBlock, 0.0F);
  pack_rows_of<Operand::kRows>(head.q, first, rows, D, blocks.q);
  const std::int64_t first_block = head.rule.first_key(first) / kBlock * kBlock;
  for (std::int64_t key = first_block; key < first + rows; key += kBlock) {
    const std::int64_t keys = std::min(kBlock, first + rows - key);
    pack_rows_of<Operand::kPairs>(head.k, key, keys, D, blocks.k);
    pack_lines_of(head.v, key, keys, D, blocks.v);
    for (std::int64_t panel = 0; panel < rows; panel += kPanel) {
      const std::int64_t last = first + std::min(panel + kPanel, rows) - 1;
      const std::int64_t visible = std::min(keys, last - key + 1);
      if (visible <= 0 || head.rule.first_key(first + panel) >= key + keys) continue;
      attend_panel(head, blocks, panel, first + panel, key, keys, visible);
    }
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    BFloat16* o = head.o.at(first + i);
    const float* sums = blocks.sums + i * padded;
    const Floats inverse = splat(1 / blocks.total[i]);
    for_vectors(D, [&](std::int64_t d, auto lanes) {
      store(o + d, load(sums + d, lanes) * inverse, lanes);
    });
    const double total = std::log(static_cast<double>(blocks.total[i]));
    head.lse[first + i] = static_cast<float>(static_cast<double>(blocks.highest[i]) + total);
  }
}

}  // namespace

void AmxOps::exec(const AttentionFwd& a, const Tensor& workspace) {
  const AttentionShape& n = a.shape;
  if (a.qkv.dtype != DType::kBF16) return CpuOps::exec(a, workspace);
  check_head_width(AttentionFwd::kName, n);
  const std::int64_t width = (n.H + 2 * n.G) * n.D;
  const std::int64_t blocks = (n.S + kBlock - 1) / kBlock;
  on_threads(num_threads(), [&](int thread, int /*threads*/) {
    const TilesInUse tiles;
#pragma omp for schedule(dynamic)
    for (std::int64_t task = 0; task < n.B * n.H * blocks; ++task) {
      const std::int64_t b = task / blocks / n.H;
      const std::int64_t h = task / blocks % n.H;
      // The last queries see the most keys: they come first.
      const std::int64_t first = (blocks - 1 - task % blocks) * kBlock;
      const BFloat16* qkv = a.qkv.ptr<const BFloat16>() + b * n.S * width;
      const std::int64_t g = h / (n.H / n.G);
      attend({.q = {qkv + h * n.D, width},
              .k = {qkv + (n.H + g) * n.D, width},
              .v = {qkv + (n.H + n.G + g) * n.D, width},
              .o = {a.o.ptr<BFloat16>() + (b * n.S * n.H + h) * n.D, n.H * n.D},
              .lse = a.lse.ptr<float>() + (b * n.H + h) * n.S,
              .D = n.D,
              .rule = head_rule(a, b, h)},
             first, std::min(kBlock, n.S - first), scratch(thread));
    }
  });
}

}  // namespace orthant::cpu::avx512
