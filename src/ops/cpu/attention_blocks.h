// What forward and backward attention share: heads as rows in memory, block sizes, packed blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "ops/attention.h"
#include "ops/cpu/gemm_pack.h"
#include "ops/cpu/gemm_tile.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/random_words.h"

namespace orthant::cpu::ORTHANT_LEVEL {

// Rows of one head inside a tensor.
template <class T>
struct Rows {
  T* data;
  std::int64_t stride;
  T* at(std::int64_t row) const { return data + row * stride; }
};

// The mask and bias of one query head.
struct HeadRule {
  float scale;
  float slope;  // ALiBi; 0 without
  bool drops;
  DropoutRule dropout;
  std::uint64_t first_element;    // dropout's element of query 0 and key 0
  std::int64_t S;                 // elements of a query
  const std::int32_t* positions;  // of each query in its document; null: there is one

  // The first key that a query sees: the first of its document. A block of queries sees no key
  // before that of its first one. Queries from S on, which fill a block, stand where the last does.
  std::int64_t first_key(std::int64_t query) const {
    if (positions == nullptr) return 0;
    const std::int64_t at = std::min(query, S - 1);
    return at - positions[at];
  }
};

// Takes parts off a piece of memory.
class Carver {
 public:
  explicit Carver(float* memory) : next_(memory) {}
  float* take(std::int64_t count) {
    float* part = next_;
    next_ += (count + 15) / 16 * 16;
    return part;
  }

 private:
  float* next_;
};

inline std::int64_t round_up(std::int64_t n, std::int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

// Rows as f32 with zeros up to `padded_rows` and `padded_width`.
template <class T>
inline void copy_rows(const Rows<const T>& from, std::int64_t first, std::int64_t rows,
                      std::int64_t width, std::int64_t padded_rows, std::int64_t padded_width,
                      float* to) {
  for (std::int64_t i = 0; i < rows; ++i) {
    const T* row = from.at(first + i);
    float* out = to + i * padded_width;
    for_vectors(width,
                [&](std::int64_t j, auto lanes) { store(out + j, load(row + j, lanes), lanes); });
    std::fill(out + width, out + padded_width, 0.0F);
  }
  std::fill(to + rows * padded_width, to + padded_rows * padded_width, 0.0F);
}

// Scores of kLanes keys from `key` on: scale * score + slope * (key - query).
inline Floats scaled_scores(Floats scores, const HeadRule& rule, std::int64_t key,
                            std::int64_t query) {
  const Ints distance = lane_numbers() + static_cast<std::uint32_t>(key - query);
  return fma(scores, splat(rule.scale), splat(rule.slope) * to_floats(distance));
}

// The lanes below `count`, which may be any number.
inline Mask lanes_below(std::int64_t count) {
  return first_lanes(static_cast<int>(std::clamp<std::int64_t>(count, 0, kLanes)));
}

// What exponentials are taken relative to: the highest score so far. Where a row has seen no key
// yet that is minus infinity, and any finite number gives the zeros that are meant.
inline Floats shift_of(Floats highest) {
  return max(splat(std::numeric_limits<float>::lowest()), highest);
}

// The rule of query head `head` of sequence `b`.
template <class Op>
HeadRule head_rule(const Op& a, std::int64_t b, std::int64_t head) {
  const AttentionShape& n = a.shape;
  HeadRule rule{.scale = static_cast<float>(n.scale),
                .slope = a.slopes.present() ? a.slopes.template ptr<const float>()[head] : 0.0F,
                .drops = n.dropout > 0,
                .dropout = {},
                .first_element = 0,
                .S = n.S,
                .positions = nullptr};
  if constexpr (requires { a.positions; }) {
    if (a.positions.present()) {
      rule.positions = a.positions.template ptr<const std::int32_t>() + b * n.S;
    }
  }
  if constexpr (requires { a.sample_ids; }) {
    if (rule.drops) {
      const auto& state = *a.step_state.template ptr<const StepState>();
      const std::int64_t sample = a.sample_ids.template ptr<const std::int64_t>()[b];
      rule.dropout = make_dropout_rule(state, n.site, n.dropout);
      rule.first_element =
          static_cast<std::uint64_t>((sample * n.num_all_heads + n.first_head + head) * n.S * n.S);
    }
  }
  return rule;
}

}  // namespace orthant::cpu::ORTHANT_LEVEL
