// Causal scaled dot-product attention with grouped heads, ALiBi, dropout and documents that do not
// see each other; the scores are never stored. One row of qkv is H query heads, then G key heads,
// then G value heads, D elements each.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/ledger.h"
#include "mem/tensor.h"

namespace orthant {

// What forward and backward share.
struct AttentionShape {
  std::int64_t B;  // sequences
  std::int64_t S;  // tokens in a sequence
  std::int64_t H;  // query heads here
  std::int64_t
      G;  // key-value heads here; H is a multiple of G, query head h uses group h / (H / G)
  std::int64_t D;              // head width
  double scale;                // of the scores: 1 / sqrt(D)
  double dropout;              // of the probabilities; 0: none
  std::uint64_t site;          // dropout's stream, see dropout.h
  std::int64_t first_head;     // global index of query head 0, and ...
  std::int64_t num_all_heads;  // ... the number of all heads: what dropout's masks are functions of
};

// o = softmax(scale * q k^T + slope * (key position - query position), causal) v
//
// `positions` count from 0 in each document of a sequence: query i sees keys i - positions[i] to i.
// In a sequence positions[i] is 0 or positions[i - 1] + 1, and positions[0] is 0.
struct AttentionFwd {
  static constexpr std::string_view kName = "attention_fwd";
  Tensor o;           // [T,H*D]        out
  Tensor lse;         // [B,H,S] f32    out: log of the sum of exponentials, kept for backward
  Tensor qkv;         // [T,(H+2G)*D]
  Tensor slopes;      // [H] f32        ALiBi; may be absent
  Tensor positions;   // [T] i32        may be absent: a sequence is one document
  Tensor sample_ids;  // [B] i64        for dropout; may be absent when dropout is 0
  Tensor step_state;  // StepState      for dropout; may be absent when dropout is 0
  AttentionShape shape;
  auto writes() const { return std::array{o, lse}; }
  auto reads() const { return std::array{qkv, slopes, positions, sample_ids, step_state}; }
};

struct AttentionBwd {
  static constexpr std::string_view kName = "attention_bwd";
  Tensor dqkv;        // [T,(H+2G)*D]   out; may be qkv's memory
  Tensor do_;         // [T,H*D]        gradient of o
  Tensor o;           // [T,H*D]
  Tensor lse;         // [B,H,S] f32
  Tensor qkv;         // [T,(H+2G)*D]
  Tensor slopes;      // [H] f32        may be absent
  Tensor positions;   // [T] i32        may be absent
  Tensor sample_ids;  // [B] i64        may be absent when dropout is 0
  Tensor step_state;  // StepState      may be absent when dropout is 0
  AttentionShape shape;
  auto writes() const { return std::array{dqkv}; }
  auto reads() const {
    return std::array{do_, o, lse, qkv, slopes, positions, sample_ids, step_state};
  }
};

// Generation: appends the keys and values of S new tokens at `start` of the cache, then each new
// token attends to all before it and itself. No dropout.
struct AttentionCached {
  static constexpr std::string_view kName = "attention_cached";
  Tensor o;              // [B*S,H*D]          out
  Tensor k_cache;        // [B,M,G,D]          in, out: rows start..start+S-1 are written
  Tensor v_cache;        // [B,M,G,D]          in, out
  Tensor qkv;            // [B*S,(H+2G)*D]
  Tensor slopes;         // [H] f32            may be absent
  AttentionShape shape;  // S is the number of new tokens
  std::int64_t start;    // tokens in the cache before this call
  auto writes() const { return std::array{o, k_cache, v_cache}; }
  auto reads() const { return std::array{qkv, slopes}; }
};

void check(const AttentionFwd& a);
void check(const AttentionBwd& a);
void check(const AttentionCached& a);
Cost cost(const AttentionFwd& a);  // counts the causal half, as of one document
Cost cost(const AttentionBwd& a);  // five products: the scores are computed again
Cost cost(const AttentionCached& a);
std::int64_t workspace_bytes(const AttentionFwd& a);
// f32 dq, dk, dv, and rowsum(do * o): T*(H+2G)*D + B*H*S floats.
std::int64_t workspace_bytes(const AttentionBwd& a);
std::int64_t workspace_bytes(const AttentionCached& a);

}  // namespace orthant
