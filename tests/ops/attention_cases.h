// Cases of attention and rotary positions.
#pragma once

#include <cmath>
#include <vector>

#include "tests/ops/op_case.h"

namespace orthant {

struct AttentionSize {
  std::int64_t B, S, H, G, D;
  bool has_slopes = false;
  double dropout = 0;
  std::vector<std::int64_t> documents = {};  // lengths, again and again; empty: one a sequence
};

// One token, odd sizes, grouped and single key-value heads, head counts that are no power of two,
// sequences around the blocks that a fast kernel works in. Documents of one token, of blocks, that
// end where blocks do and beside it, and longer than a sequence.
inline const AttentionSize kAttentionSizes[] = {{1, 1, 1, 1, 1},
                                                {2, 1, 3, 3, 8},
                                                {1, 7, 2, 2, 5},
                                                {2, 33, 4, 2, 16},
                                                {1, 65, 6, 1, 24},
                                                {3, 16, 4, 4, 64},
                                                {1, 130, 2, 1, 32},
                                                {2, 19, 6, 6, 12, true},
                                                {1, 70, 5, 5, 64, true},
                                                {2, 21, 4, 2, 8, false, 0.2},
                                                {1, 37, 3, 1, 16, true, 0.5},
                                                {1, 129, 2, 2, 80},
                                                {2, 9, 2, 1, 8, false, 0, {1}},
                                                {1, 7, 2, 2, 5, false, 0, {50}},
                                                {2, 33, 4, 2, 16, false, 0, {3, 1, 7}},
                                                {1, 300, 2, 1, 32, true, 0, {96, 97, 1, 60}},
                                                {1, 400, 2, 2, 8, false, 0, {128, 127, 3}},
                                                {2, 290, 2, 1, 40, false, 0.3, {31, 250}},
                                                {1, 700, 1, 1, 64, false, 0, {330, 12, 288}}};

// slope of head h of n heads: the series of 2^(-8/n) where n is a power of two; others take every
// second of the series of twice as many heads, as BLOOM does.
inline std::vector<double> alibi_slopes(std::int64_t num_heads) {
  std::int64_t power = 1;
  while (2 * power <= num_heads)
    power *= 2;
  std::vector<double> slopes;
  for (std::int64_t h = 0; h < num_heads; ++h) {
    const auto n = static_cast<double>(power);
    slopes.push_back(h < power ? std::exp2(-8 / n * static_cast<double>(h + 1))
                               : std::exp2(-4 / n * static_cast<double>(2 * (h - power) + 1)));
  }
  return slopes;
}

// Two more heads than are here exist, and the first is not here.
inline AttentionShape attention_shape(const AttentionSize& n) {
  return {.B = n.B,
          .S = n.S,
          .H = n.H,
          .G = n.G,
          .D = n.D,
          .scale = 1 / std::sqrt(static_cast<double>(n.D)),
          .dropout = n.dropout,
          .site = 5,
          .first_head = 1,
          .num_all_heads = n.H + 2};
}

// Of each token in its document. Sequence b begins b tokens into the row of documents, so that its
// first document is cut.
inline std::vector<std::int64_t> document_positions(const AttentionSize& n) {
  std::vector<std::int64_t> positions;
  for (std::int64_t b = 0; b < n.B; ++b) {
    std::size_t document = 0;
    std::int64_t rest = n.documents[0] - b;
    for (std::int64_t s = 0, position = 0; s < n.S; ++s, ++position, --rest) {
      if (rest <= 0) {
        rest = n.documents[++document % n.documents.size()];
        position = 0;
      }
      positions.push_back(position);
    }
  }
  return positions;
}

inline AttentionFwd attention_fwd(OpBed& bed, const AttentionSize& n, DType type) {
  const std::int64_t T = n.B * n.S;
  AttentionFwd a{.o = bed.out({T, n.H * n.D}, type),
                 .lse = bed.out({n.B, n.H, n.S}, type == DType::kF64 ? type : DType::kF32),
                 .qkv = bed.normal("qkv", {T, (n.H + 2 * n.G) * n.D}, type),
                 .slopes = {},
                 .positions = {},
                 .sample_ids = {},
                 .step_state = {},
                 .shape = attention_shape(n)};
  if (n.has_slopes) a.slopes = bed.floats({n.H}, DType::kF32, alibi_slopes(n.H));
  if (!n.documents.empty()) a.positions = bed.whole({T}, DType::kI32, document_positions(n));
  if (n.dropout > 0) {
    a.sample_ids = bed.whole("samples", {n.B}, DType::kI64, 0, 1000);
    a.step_state = bed.step_state({.step = 3, .seed = 7});
  }
  return a;
}

// The arguments of backward after `fwd`, whose outputs the caller has made.
inline AttentionBwd attention_bwd(OpBed& bed, const AttentionFwd& fwd) {
  return {.dqkv = bed.out(fwd.qkv.shape, fwd.qkv.dtype),
          .do_ = bed.normal("do", fwd.o.shape, fwd.o.dtype),
          .o = fwd.o,
          .lse = fwd.lse,
          .qkv = fwd.qkv,
          .slopes = fwd.slopes,
          .positions = fwd.positions,
          .sample_ids = fwd.sample_ids,
          .step_state = fwd.step_state,
          .shape = fwd.shape};
}

inline std::string attention_variant(const AttentionSize& n) {
  return std::string(n.has_slopes ? "alibi" : "plain") + (n.dropout > 0 ? "_dropout" : "") +
         (n.documents.empty() ? "" : "_documents");
}

inline void add_attention_cases(OpCases& cases, DType type) {
  for (const AttentionSize& n : kAttentionSizes) {
    const Shape shape = {n.B * n.S, n.H, n.G, n.D};
    const std::string variant = attention_variant(n);
    cases.push_back({case_name("attention_fwd", type, shape, variant), [=](OpBed& bed) {
                       return op_run(bed, attention_fwd(bed, n, type));
                     }});
    for (const bool in_place : {false, true}) {
      cases.push_back(
          {case_name("attention_bwd", type, shape, variant + (in_place ? "_in_place" : "")),
           [=](OpBed& bed) {
             const AttentionFwd fwd = attention_fwd(bed, n, type);
             AttentionBwd bwd = attention_bwd(bed, fwd);
             if (in_place) bwd.dqkv = bwd.qkv;
             return OpRun{.run =
                              [&bed, fwd, bwd] {
                                bed.run(fwd);
                                bed.run(bwd);
                              },
                          .writes = {bwd.dqkv}};
           }});
    }
  }
}

// S new tokens after `start`, in a cache of M.
struct CachedSize {
  std::int64_t B, S, H, G, D, start, M;
  bool has_slopes = false;
};
inline constexpr CachedSize kCachedSizes[] = {{1, 1, 1, 1, 1, 0, 1},
                                              {1, 1, 4, 2, 16, 40, 64},
                                              {2, 5, 3, 1, 8, 0, 9},
                                              {2, 7, 6, 6, 12, 3, 10, true},
                                              {1, 33, 4, 4, 64, 70, 130}};

inline void add_cached_attention_cases(OpCases& cases, DType type) {
  for (const CachedSize& n : kCachedSizes) {
    const Shape shape = {n.B * n.S, n.H, n.G, n.start};
    cases.push_back(
        {case_name("attention_cached", type, shape, n.has_slopes ? "alibi" : ""), [=](OpBed& bed) {
           const Tensor slopes =
               n.has_slopes ? bed.floats({n.H}, DType::kF32, alibi_slopes(n.H)) : Tensor{};
           const std::int64_t T = n.B * n.S;
           return op_run(
               bed, AttentionCached{.o = bed.out({T, n.H * n.D}, type),
                                    .k_cache = bed.normal("k_cache", {n.B, n.M, n.G, n.D}, type),
                                    .v_cache = bed.normal("v_cache", {n.B, n.M, n.G, n.D}, type),
                                    .qkv = bed.normal("qkv", {T, (n.H + 2 * n.G) * n.D}, type),
                                    .slopes = slopes,
                                    .shape = attention_shape({n.B, n.S, n.H, n.G, n.D}),
                                    .start = n.start});
         }});
  }
}

inline std::vector<double> rotary_frequencies(std::int64_t D, double base = 10000) {
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < D / 2; ++i) {
    frequencies.push_back(std::pow(base, -2 * static_cast<double>(i) / static_cast<double>(D)));
  }
  return frequencies;
}

inline void add_rotary_cases(OpCases& cases, DType type) {
  struct Size {
    std::int64_t T, H, G, D;
  };
  for (const Size& n :
       {Size{1, 1, 1, 2}, Size{7, 3, 1, 6}, Size{33, 4, 2, 16}, Size{130, 2, 2, 64}}) {
    for (const Rotate direction : {Rotate::kForward, Rotate::kBackward}) {
      const char* variant = direction == Rotate::kForward ? "forward" : "backward";
      cases.push_back(
          {case_name("rotary", type, {n.T, n.H, n.G, n.D}, variant), [=](OpBed& bed) {
             return op_run(
                 bed,
                 Rotary{.qkv = bed.normal("qkv", {n.T, (n.H + 2 * n.G) * n.D}, type),
                        .positions = bed.whole("positions", {n.T}, DType::kI32, 0, 100000),
                        .inv_freq = bed.floats({n.D / 2}, DType::kF32, rotary_frequencies(n.D)),
                        .H = n.H,
                        .G = n.G,
                        .direction = direction});
           }});
    }
  }
}

}  // namespace orthant
