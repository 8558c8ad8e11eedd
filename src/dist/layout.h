// LayoutConfig: how a run is laid over its ranks. The planner writes this and nothing else.
#pragma once

#include <cstdint>
#include <string>

#include "base/fields.h"

namespace orthant {

struct LayoutConfig {
  int ranks = 1;
  int tp = 1;
  int pp = 1;
  int virtual_stages = 1;
  bool sequence_parallel = false;
  std::string tp_overlap = "rows";
  std::int64_t micro_batch = 1;
  std::string schedule = "1f1b";
  std::string schedule_file;
  TextOrInts stages = {"even", {}};
  int zero_stage = 1;
  std::string zero_gather = "micro";
  std::string recompute = "none";
  std::int64_t recompute_blocks = 0;
  bool split_saved_inputs = false;
  std::string offload = "none";
  double offload_fraction = 1;
  double deadline_s = 600;

  int dp() const { return ranks / (tp * pp); }
  // The halves of a micro-batch take turns.
  bool takes_turns() const { return tp_overlap == "halves" && tp > 1; }

  template <class Visitor>
  void fields(Visitor&& v) {
    v("ranks", ranks, "all ranks; dp = ranks / (tp * pp)");
    v("tp", tp,
      "tensor-parallel ranks; divides heads and ffn, pads the vocabulary; divides kv_heads, or is "
      "a "
      "multiple: then several ranks hold one");
    v("pp", pp, "pipeline stages");
    v("virtual_stages", virtual_stages, "model parts a stage holds (interleaving)");
    v("sequence_parallel", sequence_parallel,
      "split the rows of a micro-batch over tp outside the matrix products: saves activations");
    v("tp_overlap", tp_overlap,
      "what calls of tp run beside: rows (parts of a product, of two ranks with split rows) or "
      "halves (of a micro-batch, which take turns)");
    v("micro_batch", micro_batch, "sequences in a micro-batch of one dp rank");
    v("schedule", schedule, "gpipe, 1f1b, interleaved, zero_bubble, zero_bubble_v or file");
    v("schedule_file", schedule_file, "text of the schedule, for schedule = \"file\"");
    v("stages", stages, "even, balanced, or a list of layer counts, one a stage");
    v("zero_stage", zero_stage,
      "shard over dp: 0 nothing, 1 optimizer, 2 and gradients, 3 and parameters");
    v("zero_gather", zero_gather, "ZeRO-3: micro (weights gathered per micro-batch) or step");
    v("recompute", recompute,
      "what backward computes again: none, cheap (norms and activations), attention (and "
      "attention), "
      "block (all)");
    v("recompute_blocks", recompute_blocks, "recompute only the first N blocks of a stage; 0: all");
    v("split_saved_inputs", split_saved_inputs,
      "recompute=block: each tp rank keeps its part of a block's input, gathered in backward");
    v("offload", offload, "none, stash or optimizer");
    v("offload_fraction", offload_fraction,
      "share of the blocks or the state that is offloaded, 0 to 1");
    v("deadline_s", deadline_s, "seconds a collective may wait");
  }
};

}  // namespace orthant
