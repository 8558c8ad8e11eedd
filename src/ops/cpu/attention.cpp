// Attention forward: a block of queries against blocks of keys with an online softmax. A row's bits
// do not depend on how queries are grouped into blocks.
#include <cmath>
#include <limits>

#include "ops/cpu/attention_blocks.h"
#include "ops/cpu/backend.h"

namespace orthant::cpu::ORTHANT_LEVEL {
namespace {

constexpr std::int64_t kQueries = 264;  // at most, of a block: whole tiles
constexpr std::int64_t kKeys = 96;      // of a block
constexpr float kNone = -std::numeric_limits<float>::infinity();

// One query head and the keys that it sees. Query i stands at position start + i and sees the keys
// before it and at it.
template <class T>
struct Head {
  Rows<const T> q;
  Rows<const T> k;
  Rows<const T> v;
  Rows<T> o;
  float* lse;  // of each query; may be null
  std::int64_t start;
  std::int64_t D;
  HeadRule rule;
};

struct Blocks {
  float* q;        // panels of kTileRows queries
  float* k;        // panels of kTileColumns keys
  float* v;        // panels of kTileColumns columns
  float* sums;     // [queries, padded D]: sums of p v, not yet divided
  float* highest;  // [queries]
  float* total;    // [queries]: sum of exponentials
};

std::int64_t queries_at_once(std::int64_t D) {
  constexpr std::int64_t kCacheFloats = 98304;
  const std::int64_t fitting = (kCacheFloats / round_up(D, kTileColumns) - 2 * kKeys) / 2;
  return std::clamp<std::int64_t>(fitting / kTileRows * kTileRows, 48, kQueries);
}

Blocks carve(float* scratch, std::int64_t D) {
  const std::int64_t padded = round_up(D, kTileColumns);
  Carver carver(scratch);
  const std::int64_t rows = queries_at_once(D);
  return {.q = carver.take(rows * D + kLanes),
          .k = carver.take(kKeys * D + kLanes),
          .v = carver.take(kKeys * padded + kLanes),
          .sums = carver.take(rows * padded),
          .highest = carver.take(rows + kLanes),
          .total = carver.take(rows + kLanes)};
}

// Queries of a tile, the first at position `query`, and what they see of a block of keys.
struct Place {
  std::int64_t query;
  std::int64_t key;      // position of the block's first key
  std::int64_t first;    // no row sees a key of the block before this one: whole panels
  std::int64_t visible;  // keys that the last row sees
};

// The rows of a tile of scores [kTileRows, kKeys] become probabilities not yet divided. Returns
// what earlier sums must be multiplied by.
Floats online_softmax(const HeadRule& rule, const Place& at, float* scores, float* highest,
                      float* total) {
  alignas(64) float peaks[kLanes];
  store(peaks, splat(kNone));
  for (int r = 0; r < kTileRows; ++r) {
    const std::int64_t seen = std::min(at.visible, at.query + r - at.key + 1);
    const std::int64_t hidden = rule.first_key(at.query + r) - at.key;
    float* row = scores + r * kKeys;
    Floats peak = splat(kNone);
    const auto score = [&](std::int64_t j) {
      const Floats x = scaled_scores(load(row + j), rule, at.key + j, at.query + r);
      return j + kLanes > seen ? select(lanes_below(seen - j), x, splat(kNone)) : x;
    };
    std::int64_t j = at.first;
    for (; j < hidden && j < at.visible; j += kLanes) {
      const Floats x = select(lanes_below(hidden - j), splat(kNone), score(j));
      store(row + j, x);
      peak = max(x, peak);
    }
    for (; j < at.visible; j += kLanes) {
      const Floats x = score(j);
      store(row + j, x);
      peak = max(x, peak);
    }
    peaks[r] = largest(peak);
  }
  const Floats before = load(highest);
  const Floats after = max(load(peaks), before);
  store(highest, after, Tail{kTileRows});
  const Floats from = shift_of(after);
  alignas(64) float shifts[kLanes];
  store(shifts, from);
  alignas(64) float row_totals[kLanes] = {};
  alignas(64) std::uint32_t words[kKeys + 2 * kWordsAtOnce];
  for (int r = 0; r < kTileRows; ++r) {
    float* row = scores + r * kKeys;
    const Floats shift = splat(shifts[r]);
    const std::uint32_t* word = nullptr;
    if (rule.drops) {
      const std::uint64_t first =
          rule.first_element + static_cast<std::uint64_t>((at.query + r) * rule.S + at.key);
      word = rule.dropout.words(first, at.visible, words);
    }
    Floats row_total = zero();
    for (std::int64_t j = at.first; j < at.visible; j += kLanes) {
      Floats p = exp(load(row + j) - shift);
      row_total += p;
      if (rule.drops) p = p * rule.dropout.factors(word + j);
      store(row + j, p);
    }
    row_totals[r] = sum(row_total);
  }
  const Floats factor = exp(before - from);
  store(total, fma(load(total), factor, load(row_totals)), Tail{kTileRows});
  return factor;
}

// sums = sums * factor of the row + p v, over `count` keys; a panel of v has `keys`.
void add_values(const float* p, const float* v, std::int64_t keys, std::int64_t count,
                std::int64_t padded, Floats factors, float* sums) {
  alignas(64) float factor[kLanes];
  store(factor, factors);
  for (std::int64_t d = 0; d < padded; d += kTileColumns) {
    const Tile tile = tile_product<kKeys, 1>(count, p, v + d * keys, kTileColumns);
#pragma GCC unroll 12
    for (int r = 0; r < kTileRows; ++r) {
      float* to = sums + r * padded + d;
      const Floats f = splat(factor[r]);
      store(to, fma(load(to), f, tile.row[r][0]));
      store(to + kLanes, fma(load(to + kLanes), f, tile.row[r][1]));
    }
  }
}

// The queries of a tile at `panel` of the block against a block of keys.
void attend_panel(const HeadRule& rule, const Blocks& blocks, std::int64_t D, std::int64_t panel,
                  const Place& at, std::int64_t keys) {
  alignas(64) float scores[kTileRows * kKeys];
  for (std::int64_t j = at.first; j < at.visible; j += kTileColumns) {
    store_tile(tile_product<1, kTileRows>(D, blocks.q + panel * D, blocks.k + j * D, kTileColumns),
               scores + j, kKeys);
  }
  const Floats factors =
      online_softmax(rule, at, scores, blocks.highest + panel, blocks.total + panel);
  const std::int64_t padded = round_up(D, kTileColumns);
  add_values(scores + at.first, blocks.v + at.first * kTileColumns, keys, at.visible - at.first,
             padded, factors, blocks.sums + panel * padded);
}

template <class T>
void write_rows(const Head<T>& head, const Blocks& blocks, std::int64_t first, std::int64_t rows) {
  const std::int64_t padded = round_up(head.D, kTileColumns);
  for (std::int64_t i = 0; i < rows; ++i) {
    const float* sums = blocks.sums + i * padded;
    T* o = head.o.at(first + i);
    const Floats inverse = splat(1 / blocks.total[i]);
    for_vectors(head.D,
                [&](std::int64_t d, auto lanes) { store(o + d, load(sums + d) * inverse, lanes); });
    if (head.lse != nullptr) {
      const double total = std::log(static_cast<double>(blocks.total[i]));
      head.lse[first + i] = static_cast<float>(static_cast<double>(blocks.highest[i]) + total);
    }
  }
}

// Queries first .. first + rows - 1.
template <class T>
void attend(const Head<T>& head, std::int64_t first, std::int64_t rows, float* scratch) {
  const std::int64_t D = head.D;
  const Blocks blocks = carve(scratch, D);
  const std::int64_t all_rows = round_up(rows, kTileRows);
  std::fill(blocks.sums, blocks.sums + all_rows * round_up(D, kTileColumns), 0.0F);
  std::fill(blocks.highest, blocks.highest + all_rows + kLanes - kTileRows, kNone);
  std::fill(blocks.total, blocks.total + all_rows + kLanes - kTileRows, 0.0F);
  pack_rows<kTileRows>(head.q.at(first), head.q.stride, rows, D, blocks.q);
  const std::int64_t query = head.start + first;
  const std::int64_t first_block = head.rule.first_key(query) / kKeys * kKeys;
  for (std::int64_t key = first_block; key < query + rows; key += kKeys) {
    const std::int64_t keys = std::min(kKeys, query + rows - key);
    pack_rows<kTileColumns>(head.k.at(key), head.k.stride, keys, D, blocks.k);
    pack_columns<kTileColumns>(head.v.at(key), head.v.stride, D, keys, blocks.v);
    for (std::int64_t panel = 0; panel < rows; panel += kTileRows) {
      const std::int64_t last = query + std::min<std::int64_t>(panel + kTileRows, rows) - 1;
      const std::int64_t hidden =
          std::max<std::int64_t>(0, head.rule.first_key(query + panel) - key);
      const Place at{.query = query + panel,
                     .key = key,
                     .first = hidden / kTileColumns * kTileColumns,
                     .visible = std::min(keys, last - key + 1)};
      if (at.visible <= at.first) continue;
      attend_panel(head.rule, blocks, D, panel, at, keys);
    }
  }
  write_rows(head, blocks, first, rows);
}

// Calls body(sequence, head, first query, queries, thread) for all queries of all heads.
template <class Body>
void for_query_blocks(const AttentionShape& n, int num_threads, Body&& body) {
  std::int64_t rows = queries_at_once(n.D);
  while (rows > 48 && n.B * n.H * ((n.S + rows - 1) / rows) < 2 * num_threads) {
    rows = round_up(rows / 2, kTileRows);
  }
  const std::int64_t blocks = (n.S + rows - 1) / rows;
  const std::int64_t tasks = n.B * n.H * blocks;
  on_threads(num_threads, [&](int thread, int /*threads*/) {
#pragma omp for schedule(dynamic)
    for (std::int64_t task = 0; task < tasks; ++task) {
      // The last queries see the most keys: they come first.
      const std::int64_t first = (blocks - 1 - task % blocks) * rows;
      const std::int64_t head = task / blocks;
      body(head / n.H, head % n.H, first, std::min(rows, n.S - first), thread);
    }
  });
}

template <class T>
void append_to_cache(const AttentionCached& a) {
  const AttentionShape& n = a.shape;
  const std::int64_t M = a.k_cache.shape[1];
  const std::int64_t width = n.G * n.D;
  for (std::int64_t t = 0; t < n.B * n.S; ++t) {
    const T* k = a.qkv.ptr<const T>() + t * (n.H + 2 * n.G) * n.D + n.H * n.D;
    const std::int64_t to = (t / n.S * M + a.start + t % n.S) * width;
    const auto bytes = static_cast<std::size_t>(width) * sizeof(T);
    std::memcpy(a.k_cache.ptr<T>() + to, k, bytes);
    std::memcpy(a.v_cache.ptr<T>() + to, k + width, bytes);
  }
}

}  // namespace

void CpuOps::exec(const AttentionFwd& a, const Tensor& /*workspace*/) {
  const AttentionShape& n = a.shape;
  check_head_width(AttentionFwd::kName, n);
  const std::int64_t width = (n.H + 2 * n.G) * n.D;
  with_type(a.qkv.dtype, AttentionFwd::kName, [&](auto element) {
    using T = decltype(element);
    for_query_blocks(
        n, num_threads_,
        [&](std::int64_t b, std::int64_t h, std::int64_t first, std::int64_t rows, int thread) {
          const T* qkv = a.qkv.ptr<const T>() + b * n.S * width;
          const std::int64_t g = h / (n.H / n.G);
          const Head<T> head{.q = {qkv + h * n.D, width},
                             .k = {qkv + (n.H + g) * n.D, width},
                             .v = {qkv + (n.H + n.G + g) * n.D, width},
                             .o = {a.o.ptr<T>() + (b * n.S * n.H + h) * n.D, n.H * n.D},
                             .lse = a.lse.ptr<float>() + (b * n.H + h) * n.S,
                             .start = 0,
                             .D = n.D,
                             .rule = head_rule(a, b, h)};
          attend(head, first, rows, scratch(thread));
        });
  });
}

void CpuOps::exec(const AttentionCached& a, const Tensor& /*workspace*/) {
  const AttentionShape& n = a.shape;
  check_head_width(AttentionCached::kName, n);
  const std::int64_t M = a.k_cache.shape[1];
  const std::int64_t width = (n.H + 2 * n.G) * n.D;
  with_type(a.qkv.dtype, AttentionCached::kName, [&](auto element) {
    using T = decltype(element);
    append_to_cache<T>(a);
    for_query_blocks(
        n, num_threads_,
        [&](std::int64_t b, std::int64_t h, std::int64_t first, std::int64_t rows, int thread) {
          const std::int64_t cached = (b * M * n.G + h / (n.H / n.G)) * n.D;
          const Head<T> head{.q = {a.qkv.ptr<const T>() + b * n.S * width + h * n.D, width},
                             .k = {a.k_cache.ptr<const T>() + cached, n.G * n.D},
                             .v = {a.v_cache.ptr<const T>() + cached, n.G * n.D},
                             .o = {a.o.ptr<T>() + (b * n.S * n.H + h) * n.D, n.H * n.D},
                             .lse = nullptr,
                             .start = a.start,
                             .D = n.D,
                             .rule = head_rule(a, b, h)};
          attend(head, first, rows, scratch(thread));
        });
  });
}

}  // namespace orthant::cpu::ORTHANT_LEVEL
