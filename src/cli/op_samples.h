// Ops with arguments of training's shapes, for measuring. A Meter has type(), in which they
// compute, and add(name, bound, make), where make(bed) gives the arguments: see cli/bench_bed.h.
#pragma once

#include <cstdint>
#include <string>

#include "ops/ops.h"

namespace orthant {

enum class Bound : std::uint8_t { kFlops, kBytes };

struct ProductShape {
  std::int64_t tokens;
  std::int64_t inputs;
  std::int64_t outputs;
  bool has_bias = true;
};

template <class Meter>
void add_product(Meter& meter, const std::string& shape, const ProductShape& n) {
  const DType type = meter.type();
  const Shape x = {n.tokens, n.inputs};
  const Shape y = {n.tokens, n.outputs};
  const Shape w = {n.outputs, n.inputs};
  meter.add("linear_fwd " + shape, Bound::kFlops, [=](auto& bed) {
    return LinearFwd{.y = bed.alloc(y, type),
                     .x = bed.values(x, type),
                     .w = bed.values(w, type),
                     .b = n.has_bias ? bed.values({n.outputs}, type) : Tensor{}};
  });
  meter.add("linear_bwd_input " + shape, Bound::kFlops, [=](auto& bed) {
    return LinearBwdInput{
        .dx = bed.alloc(x, type), .dy = bed.values(y, type), .w = bed.values(w, type)};
  });
  meter.add("linear_bwd_weight " + shape, Bound::kFlops, [=](auto& bed) {
    return LinearBwdWeight{.dw = bed.alloc(w, DType::kF32),
                           .db = n.has_bias ? bed.alloc({n.outputs}, DType::kF32) : Tensor{},
                           .dy = bed.values(y, type),
                           .x = bed.values(x, type)};
  });
}

// B sequences of S tokens, H query heads of D in G groups.
inline AttentionShape attention_sample(std::int64_t B, std::int64_t S, std::int64_t H,
                                       std::int64_t G, std::int64_t D) {
  return {.B = B,
          .S = S,
          .H = H,
          .G = G,
          .D = D,
          .scale = 0.125,
          .dropout = 0,
          .site = 7,
          .first_head = 0,
          .num_all_heads = H};
}

template <class Meter>
void add_attention(Meter& meter, const std::string& shape, const AttentionShape& n) {
  const DType type = meter.type();
  const std::int64_t T = n.B * n.S;
  const std::int64_t width = (n.H + 2 * n.G) * n.D;
  meter.add("attention_fwd " + shape, Bound::kFlops, [=](auto& bed) {
    return AttentionFwd{.o = bed.alloc({T, n.H * n.D}, type),
                        .lse = bed.alloc({n.B, n.H, n.S}, DType::kF32),
                        .qkv = bed.values({T, width}, type),
                        .slopes = {},
                        .positions = {},
                        .sample_ids = bed.samples(n.B),
                        .step_state = bed.step_state(),
                        .shape = n};
  });
  meter.add("attention_bwd " + shape, Bound::kFlops, [=](auto& bed) {
    return AttentionBwd{.dqkv = bed.alloc({T, width}, type),
                        .do_ = bed.values({T, n.H * n.D}, type),
                        .o = bed.values({T, n.H * n.D}, type),
                        .lse = bed.alloc({n.B, n.H, n.S}, DType::kF32),
                        .qkv = bed.values({T, width}, type),
                        .slopes = {},
                        .positions = {},
                        .sample_ids = bed.samples(n.B),
                        .step_state = bed.step_state(),
                        .shape = n};
  });
}

// Of what is bound by memory.
struct SampleSizes {
  std::int64_t tokens;
  std::int64_t width;
  std::int64_t vocabulary;
  std::int64_t elements;  // of ops that work element by element
  NormKind norm = NormKind::kLayerNorm;
};

template <class Meter>
void add_norms(Meter& meter, const SampleSizes& n) {
  const DType type = meter.type();
  const Shape rows = {n.tokens, n.width};
  const bool centres = n.norm == NormKind::kLayerNorm;
  meter.add("norm_fwd", Bound::kBytes, [=](auto& bed) {
    return NormFwd{.y = bed.alloc(rows, type),
                   .sum = bed.alloc(rows, type),
                   .mean = centres ? bed.alloc({n.tokens}, DType::kF32) : Tensor{},
                   .rstd = bed.alloc({n.tokens}, DType::kF32),
                   .x = bed.values(rows, type),
                   .addend = bed.values(rows, type),
                   .w = bed.values({n.width}, type),
                   .b = centres ? bed.values({n.width}, type) : Tensor{},
                   .kind = n.norm,
                   .eps = 1e-5};
  });
  meter.add("norm_bwd", Bound::kBytes, [=](auto& bed) {
    return NormBwd{.dx = bed.alloc(rows, type),
                   .dw = bed.alloc({n.width}, DType::kF32),
                   .db = centres ? bed.alloc({n.width}, DType::kF32) : Tensor{},
                   .dy = bed.values(rows, type),
                   .x = bed.values(rows, type),
                   .w = bed.values({n.width}, type),
                   .mean = centres ? bed.values({n.tokens}, DType::kF32) : Tensor{},
                   .rstd = bed.values({n.tokens}, DType::kF32),
                   .d_residual = bed.values(rows, type),
                   .kind = n.norm};
  });
}

template <class Meter>
void add_activations(Meter& meter, const SampleSizes& n) {
  const DType type = meter.type();
  const Shape inner = {n.tokens, 4 * n.width};
  meter.add("gelu_fwd", Bound::kBytes, [=](auto& bed) {
    return GeluFwd{.y = bed.alloc(inner, type), .x = bed.values(inner, type)};
  });
  meter.add("gelu_bwd", Bound::kBytes, [=](auto& bed) {
    return GeluBwd{
        .dx = bed.alloc(inner, type), .dy = bed.values(inner, type), .x = bed.values(inner, type)};
  });
  const Shape both = {n.tokens, 8 * n.width};
  meter.add("swiglu_fwd", Bound::kBytes, [=](auto& bed) {
    return SwigluFwd{.y = bed.alloc(inner, type), .gate_up = bed.values(both, type)};
  });
  meter.add("swiglu_bwd", Bound::kBytes, [=](auto& bed) {
    return SwigluBwd{.d_gate_up = bed.alloc(both, type),
                     .dy = bed.values(inner, type),
                     .gate_up = bed.values(both, type)};
  });
}

// The width is a multiple of 64, the size of a head.
template <class Meter>
void add_tokens(Meter& meter, const SampleSizes& n) {
  const DType type = meter.type();
  meter.add("rotary", Bound::kBytes, [=](auto& bed) {
    return Rotary{.qkv = bed.values({n.tokens, 3 * n.width}, type),
                  .positions = bed.ids(n.tokens, n.tokens),
                  .inv_freq = bed.values({32}, DType::kF32),
                  .H = n.width / 64,
                  .G = n.width / 64,
                  .direction = Rotate::kForward};
  });
  meter.add("embedding_fwd", Bound::kBytes, [=](auto& bed) {
    return EmbeddingFwd{.y = bed.alloc({n.tokens, n.width}, type),
                        .ids = bed.ids(n.tokens, n.vocabulary),
                        .table = bed.values({n.vocabulary, n.width}, type),
                        .first_row = 0,
                        .write = Write::kSet};
  });
  meter.add("embedding_bwd", Bound::kBytes, [=](auto& bed) {
    return EmbeddingBwd{.dtable = bed.alloc({n.vocabulary, n.width}, DType::kF32),
                        .dy = bed.values({n.tokens, n.width}, type),
                        .ids = bed.ids(n.tokens, n.vocabulary),
                        .first_row = 0};
  });
  const Shape logits = {n.tokens, n.vocabulary};
  meter.add("softmax_part", Bound::kBytes, [=](auto& bed) {
    return SoftmaxPart{.part = bed.alloc({n.tokens, 3}, DType::kF32),
                       .logits = bed.values(logits, type),
                       .labels = bed.ids(n.tokens, n.vocabulary),
                       .first_column = 0,
                       .valid = n.vocabulary};
  });
  meter.add("cross_entropy_bwd", Bound::kBytes, [=](auto& bed) {
    const Tensor values = bed.values(logits, type);
    return CrossEntropyBwd{.dlogits = values,
                           .logits = values,
                           .lse = bed.values({n.tokens}, DType::kF32),
                           .labels = bed.ids(n.tokens, n.vocabulary),
                           .step_state = bed.step_state(),
                           .first_column = 0,
                           .valid = n.vocabulary};
  });
}

template <class Meter>
void add_adamw(Meter& meter, std::int64_t elements) {
  const DType type = meter.type();
  const Shape many = {elements};
  meter.add("adamw", Bound::kBytes, [=](auto& bed) {
    return AdamW{.master = bed.values(many, DType::kF32),
                 .m = bed.values(many, DType::kF32),
                 .v = bed.alloc(many, DType::kF32),
                 .value = type == DType::kF32 ? Tensor{} : bed.alloc(many, type),
                 .grad = bed.values(many, DType::kF32),
                 .step_state = bed.step_state(),
                 .beta1 = 0.9,
                 .beta2 = 0.95,
                 .eps = 1e-8,
                 .weight_decay = 0.1};
  });
}

template <class Meter>
void add_elementwise(Meter& meter, const SampleSizes& n) {
  const DType type = meter.type();
  const Shape many = {n.elements};
  meter.add("add", Bound::kBytes, [=](auto& bed) {
    return Add{
        .y = bed.alloc(many, type), .a = bed.values(many, type), .b = bed.values(many, type)};
  });
  meter.add("accumulate", Bound::kBytes, [=](auto& bed) {
    return Accumulate{.y = bed.alloc(many, DType::kF32), .x = bed.values(many, type)};
  });
  meter.add("copy", Bound::kBytes, [=](auto& bed) {
    return Copy{.y = bed.alloc(many, DType::kF32), .x = bed.values(many, type)};
  });
  meter.add("zero", Bound::kBytes, [=](auto& bed) { return Zero{.y = bed.alloc(many, type)}; });
  meter.add("dropout", Bound::kBytes, [=](auto& bed) {
    const Shape rows = {n.tokens, n.width};
    return Dropout{.y = bed.alloc(rows, type),
                   .x = bed.values(rows, type),
                   .sample_ids = bed.samples(4),
                   .step_state = bed.step_state(),
                   .S = n.tokens / 4,
                   .first_row = 0,
                   .p = 0.1,
                   .site = 3};
  });
  meter.add("count_non_finite", Bound::kBytes, [=](auto& bed) {
    return CountNonFinite{.count = bed.alloc({1}, DType::kI64), .x = bed.values(many, type)};
  });
  meter.add("squared_norm", Bound::kBytes, [=](auto& bed) {
    return SquaredNorm{.sum = bed.alloc({kNormLimbs}, DType::kI64),
                       .g = bed.values(many, DType::kF32)};
  });
  add_adamw(meter, n.elements);
}

}  // namespace orthant
