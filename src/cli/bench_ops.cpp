// orthant bench ops: each op of the cpu backend at the shapes of GPT-2 124M and a LLaMA, as a
// fraction of what the machine gives: matrix ops of oneDNN's product of 1024^3, others of a copy of
// memory. The machine is measured in turn with every op, since its speed changes; each side's best
// run counts.
#include <algorithm>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "cli/bench.h"
#include "cli/bench_bed.h"
#include "ops/cpu/onednn_reference.h"

namespace orthant {
namespace {

enum class Bound : std::uint8_t { kFlops, kBytes };

// Measures ops one after another and writes down what it finds.
class OpsMeter {
 public:
  OpsMeter(const OpsBench& bench, DType type)
      : bench_(bench),
        type_(type),
        product_(1024, type, bench.num_threads),
        copy_(bench.num_threads) {}

  DType type() const { return type_; }
  DType reference_type() const { return product_.type(); }
  const OrderedJson& rows() const { return rows_; }

  // `make` gives the op's arguments from a bed.
  template <class Make>
  void add(const std::string& name, Bound bound, Make make) {
    if (name.find(bench_.filter) == std::string::npos) return;
    Bed bed(bench_.num_threads);
    measure(name, bound, bed, make(bed));
  }

 private:
  template <OpArgs A>
  void measure(const std::string& name, Bound bound, Bed& bed, const A& args) {
    constexpr double kReferenceEvery = 0.1;  // seconds of the op
    bed.run_seconds(args);
    const Cost costs = cost(args);
    double best = 1e30;
    double reference = 0;
    double total = 0;
    double since = kReferenceEvery;
    while (total < bench_.seconds) {
      if (since >= kReferenceEvery) {
        since = 0;
        reference = std::max(reference, bound == Bound::kFlops ? product_flops_per_second()
                                                               : copy_.bytes_per_second());
      }
      const double seconds = bed.run_seconds(args);
      since += seconds;
      total += seconds;
      best = std::min(best, seconds);
    }
    const double speed = (bound == Bound::kFlops ? costs.flops : costs.bytes) / best;
    rows_.push_back({{"op", name},
                     {"type", name_of(type_)},
                     {"ms", best * 1e3},
                     {"gflops", costs.flops * 1e-9 / best},
                     {"gb_per_s", costs.bytes * 1e-9 / best},
                     {"bound", bound == Bound::kFlops ? "onednn" : "copy"},
                     {"machine", reference * 1e-9},
                     {"fraction", speed / reference}});
  }

  double product_flops_per_second() {
    const double start = seconds_now(bench_.num_threads);
    product_.run();
    return product_.flops() / (seconds_now(bench_.num_threads) - start);
  }

  const OpsBench& bench_;
  DType type_;
  OneDnnReference product_;
  ReferenceCopy copy_;
  OrderedJson rows_ = OrderedJson::array();
};

constexpr std::int64_t kTokens = 1024;
constexpr std::int64_t kWidth = 768;
constexpr std::int64_t kVocabulary = 50257;

void add_linear(const std::string& layer, OpsMeter& meter, std::int64_t I, std::int64_t O) {
  const DType type = meter.type();
  const std::string shape = " " + layer;
  meter.add("linear_fwd" + shape, Bound::kFlops, [=](Bed& bed) {
    return LinearFwd{.y = bed.alloc({kTokens, O}, type),
                     .x = bed.values({kTokens, I}, type),
                     .w = bed.values({O, I}, type),
                     .b = bed.values({O}, type)};
  });
  meter.add("linear_bwd_input" + shape, Bound::kFlops, [=](Bed& bed) {
    return LinearBwdInput{.dx = bed.alloc({kTokens, I}, type),
                          .dy = bed.values({kTokens, O}, type),
                          .w = bed.values({O, I}, type)};
  });
  meter.add("linear_bwd_weight" + shape, Bound::kFlops, [=](Bed& bed) {
    return LinearBwdWeight{.dw = bed.alloc({O, I}, DType::kF32),
                           .db = bed.alloc({O}, DType::kF32),
                           .dy = bed.values({kTokens, O}, type),
                           .x = bed.values({kTokens, I}, type)};
  });
}

void add_attention(const std::string& model, OpsMeter& meter, const AttentionShape& n) {
  const DType type = meter.type();
  const std::int64_t T = n.B * n.S;
  const std::int64_t width = (n.H + 2 * n.G) * n.D;
  meter.add("attention_fwd " + model, Bound::kFlops, [=](Bed& bed) {
    return AttentionFwd{.o = bed.alloc({T, n.H * n.D}, type),
                        .lse = bed.alloc({n.B, n.H, n.S}, DType::kF32),
                        .qkv = bed.values({T, width}, type),
                        .slopes = {},
                        .sample_ids = bed.samples(n.B),
                        .step_state = bed.step_state(),
                        .shape = n};
  });
  meter.add("attention_bwd " + model, Bound::kFlops, [=](Bed& bed) {
    return AttentionBwd{.dqkv = bed.alloc({T, width}, type),
                        .do_ = bed.values({T, n.H * n.D}, type),
                        .o = bed.values({T, n.H * n.D}, type),
                        .lse = bed.alloc({n.B, n.H, n.S}, DType::kF32),
                        .qkv = bed.values({T, width}, type),
                        .slopes = {},
                        .sample_ids = bed.samples(n.B),
                        .step_state = bed.step_state(),
                        .shape = n};
  });
}

AttentionShape attention_shape(std::int64_t B, std::int64_t S, std::int64_t H, std::int64_t G,
                               std::int64_t D, double dropout) {
  return {.B = B,
          .S = S,
          .H = H,
          .G = G,
          .D = D,
          .scale = 0.125,
          .dropout = dropout,
          .site = 7,
          .first_head = 0,
          .num_all_heads = H};
}

void add_norms(OpsMeter& meter) {
  const DType type = meter.type();
  const Shape rows = {kTokens, kWidth};
  meter.add("norm_fwd", Bound::kBytes, [=](Bed& bed) {
    return NormFwd{.y = bed.alloc(rows, type),
                   .sum = bed.alloc(rows, type),
                   .mean = bed.alloc({kTokens}, DType::kF32),
                   .rstd = bed.alloc({kTokens}, DType::kF32),
                   .x = bed.values(rows, type),
                   .addend = bed.values(rows, type),
                   .w = bed.values({kWidth}, type),
                   .b = bed.values({kWidth}, type),
                   .kind = NormKind::kLayerNorm,
                   .eps = 1e-5};
  });
  meter.add("norm_bwd", Bound::kBytes, [=](Bed& bed) {
    return NormBwd{.dx = bed.alloc(rows, type),
                   .dw = bed.alloc({kWidth}, DType::kF32),
                   .db = bed.alloc({kWidth}, DType::kF32),
                   .dy = bed.values(rows, type),
                   .x = bed.values(rows, type),
                   .w = bed.values({kWidth}, type),
                   .mean = bed.values({kTokens}, DType::kF32),
                   .rstd = bed.values({kTokens}, DType::kF32),
                   .d_residual = bed.values(rows, type),
                   .kind = NormKind::kLayerNorm};
  });
}

void add_activations(OpsMeter& meter) {
  const DType type = meter.type();
  const Shape inner = {kTokens, 4 * kWidth};
  meter.add("gelu_fwd", Bound::kBytes, [=](Bed& bed) {
    return GeluFwd{.y = bed.alloc(inner, type), .x = bed.values(inner, type)};
  });
  meter.add("gelu_bwd", Bound::kBytes, [=](Bed& bed) {
    return GeluBwd{
        .dx = bed.alloc(inner, type), .dy = bed.values(inner, type), .x = bed.values(inner, type)};
  });
  const Shape both = {kTokens, 8 * kWidth};
  meter.add("swiglu_fwd", Bound::kBytes, [=](Bed& bed) {
    return SwigluFwd{.y = bed.alloc(inner, type), .gate_up = bed.values(both, type)};
  });
  meter.add("swiglu_bwd", Bound::kBytes, [=](Bed& bed) {
    return SwigluBwd{.d_gate_up = bed.alloc(both, type),
                     .dy = bed.values(inner, type),
                     .gate_up = bed.values(both, type)};
  });
}

void add_tokens(OpsMeter& meter) {
  const DType type = meter.type();
  meter.add("rotary", Bound::kBytes, [=](Bed& bed) {
    return Rotary{.qkv = bed.values({kTokens, 3 * kWidth}, type),
                  .positions = bed.ids(kTokens, kTokens),
                  .inv_freq = bed.values({32}, DType::kF32),
                  .H = 12,
                  .G = 12,
                  .direction = Rotate::kForward};
  });
  meter.add("embedding_fwd", Bound::kBytes, [=](Bed& bed) {
    return EmbeddingFwd{.y = bed.alloc({kTokens, kWidth}, type),
                        .ids = bed.ids(kTokens, kVocabulary),
                        .table = bed.values({kVocabulary, kWidth}, type),
                        .first_row = 0,
                        .write = Write::kSet};
  });
  meter.add("embedding_bwd", Bound::kBytes, [=](Bed& bed) {
    return EmbeddingBwd{.dtable = bed.alloc({kVocabulary, kWidth}, DType::kF32),
                        .dy = bed.values({kTokens, kWidth}, type),
                        .ids = bed.ids(kTokens, kVocabulary),
                        .first_row = 0};
  });
  const Shape logits = {kTokens, kVocabulary};
  meter.add("softmax_part", Bound::kBytes, [=](Bed& bed) {
    return SoftmaxPart{.part = bed.alloc({kTokens, 3}, DType::kF32),
                       .logits = bed.values(logits, type),
                       .labels = bed.ids(kTokens, kVocabulary),
                       .first_column = 0,
                       .valid = kVocabulary};
  });
  meter.add("cross_entropy_bwd", Bound::kBytes, [=](Bed& bed) {
    const Tensor values = bed.values(logits, type);
    return CrossEntropyBwd{.dlogits = values,
                           .logits = values,
                           .lse = bed.values({kTokens}, DType::kF32),
                           .labels = bed.ids(kTokens, kVocabulary),
                           .step_state = bed.step_state(),
                           .first_column = 0,
                           .valid = kVocabulary};
  });
}

void add_elementwise(OpsMeter& meter) {
  const DType type = meter.type();
  const Shape many = {std::int64_t{16} << 20};
  meter.add("add", Bound::kBytes, [=](Bed& bed) {
    return Add{
        .y = bed.alloc(many, type), .a = bed.values(many, type), .b = bed.values(many, type)};
  });
  meter.add("accumulate", Bound::kBytes, [=](Bed& bed) {
    return Accumulate{.y = bed.alloc(many, DType::kF32), .x = bed.values(many, type)};
  });
  meter.add("copy_to_f32", Bound::kBytes, [=](Bed& bed) {
    return Copy{.y = bed.alloc(many, DType::kF32), .x = bed.values(many, type)};
  });
  meter.add("zero", Bound::kBytes, [=](Bed& bed) { return Zero{.y = bed.alloc(many, type)}; });
  meter.add("dropout", Bound::kBytes, [=](Bed& bed) {
    const Shape rows = {kTokens, kWidth};
    return Dropout{.y = bed.alloc(rows, type),
                   .x = bed.values(rows, type),
                   .sample_ids = bed.samples(4),
                   .step_state = bed.step_state(),
                   .S = kTokens / 4,
                   .first_row = 0,
                   .p = 0.1,
                   .site = 3};
  });
  meter.add("count_non_finite", Bound::kBytes, [=](Bed& bed) {
    return CountNonFinite{.count = bed.alloc({1}, DType::kI64), .x = bed.values(many, type)};
  });
  if (type == DType::kF32) {
    meter.add("squared_norm", Bound::kBytes, [=](Bed& bed) {
      return SquaredNorm{.sum = bed.alloc({kNormLimbs}, DType::kI64), .g = bed.values(many, type)};
    });
  }
  meter.add("adamw", Bound::kBytes, [=](Bed& bed) {
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

void add_all(OpsMeter& meter) {
  add_linear("768x768", meter, kWidth, kWidth);
  add_linear("768x2304", meter, kWidth, 3 * kWidth);
  add_linear("768x3072", meter, kWidth, 4 * kWidth);
  add_linear("3072x768", meter, 4 * kWidth, kWidth);
  add_linear("768x50257", meter, kWidth, kVocabulary);
  add_attention("gpt2", meter, attention_shape(4, 256, 12, 12, 64, 0));
  add_attention("gpt2_dropout", meter, attention_shape(4, 256, 12, 12, 64, 0.1));
  add_attention("llama", meter, attention_shape(1, 1024, 16, 4, 128, 0));
  add_norms(meter);
  add_activations(meter);
  add_tokens(meter);
  add_elementwise(meter);
}

}  // namespace

BenchResult bench_ops(const OpsBench& bench) {
  BenchResult result;
  result.json = {{"threads", bench.num_threads}, {"ops", OrderedJson::array()}};
  std::vector<std::vector<std::string>> table = {
      {"op", "type", "ms", "GFLOP/s", "GB/s", "machine", "of machine"}};
  for (const DType type : bench.types) {
    OpsMeter meter(bench, type);
    add_all(meter);
    for (const auto& row : meter.rows()) {
      result.json["ops"].push_back(row);
      const bool is_product = row["bound"] == "onednn";
      table.push_back(
          {row["op"], row["type"], fmt::format("{:.3f}", row["ms"].get<double>()),
           fmt::format("{:.1f}", row["gflops"].get<double>()),
           fmt::format("{:.1f}", row["gb_per_s"].get<double>()),
           fmt::format("{:.1f} {}", row["machine"].get<double>(), is_product ? "GFLOP/s" : "GB/s"),
           fmt::format("{:.1f} %", row["fraction"].get<double>() * 100)});
    }
    if (meter.reference_type() != type) {
      result.text +=
          fmt::format("{}: oneDNN has no fast product for this processor; the machine's is {}'s\n",
                      name_of(type), name_of(meter.reference_type()));
    }
  }
  result.text += format_table(table);
  return result;
}

}  // namespace orthant
