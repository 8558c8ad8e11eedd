// The graphs of causal attention that cuDNN computes in one kernel, or backward in three.
#pragma once

#include <array>
#include <tuple>
#include <vector>

#include "mem/dtype.h"
#include "ops/attention.h"
#include "ops/cuda/cudnn_graph.h"

namespace orthant::cuda {

// Tensors of the graphs. Queries, keys and values lie in one buffer; each pointer is at its first
// head. A deterministic backward reads the keys again when their gradients are written, which may
// lie in their place: its kK is a copy of them alone, [B,S,G,D].
enum class AttentionTensor : std::int64_t {
  kQ = 1,
  kK,
  kV,
  kO,
  kLse,
  kDO,
  kDQ,
  kDK,
  kDV,
  kSlopes,
  kPositions,  // i32 [B,1,S,1], of tokens in their documents
  kSeed,       // i64 [1,1,1,1], of dropout
  kOffset,     // i64 [1,1,1,1]
  kDQSum,      // f32 scratch [B,H,S,D], contents irrelevant; not where deterministic
  kRowSum,     // f32 scratch [B,H,S]
  kScale,      // by value: host pointers
  kNegativeInfinity,
  kKept,  // 1 - dropout, which is 1 where there is none
  kKeptInverse
};

// What shapes a graph.
struct AttentionProblem {
  std::int64_t B, S, H, G, D;
  DType type;
  bool has_slopes;
  bool has_positions;  // queries see their own document alone
  double dropout;      // of the probabilities; 0: none
  bool is_backward;
  bool is_deterministic;  // backward adds dq in a fixed order
  friend bool operator<(const AttentionProblem& a, const AttentionProblem& b) {
    const auto fields = [](const AttentionProblem& p) {
      return std::tie(p.B, p.S, p.H, p.G, p.D, p.type, p.has_slopes, p.has_positions, p.dropout,
                      p.is_backward, p.is_deterministic);
    };
    return fields(a) < fields(b);
  }
};

struct AttentionGraph {
  Descriptor graph;
  std::vector<AttentionTensor> tensors;  // what a call must give, in this order
};

AttentionGraph attention_graph(const AttentionProblem& problem);

}  // namespace orthant::cuda
