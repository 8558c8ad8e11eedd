// Each op of the cpu backend at the shapes of GPT-2 124M and a LLaMA, as a fraction of what the
// machine gives: matrix ops of oneDNN's f32 product of 1024^3, others of a copy of memory. The
// machine is measured beside every op, in turn with it, since its speed changes; each side's best
// run counts.
#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>

#include "bench/ops_bed.h"

namespace orthant {
namespace {

enum class Bound : std::uint8_t { kFlops, kBytes };

// Runs `args` until Google Benchmark has seen enough, the machine's own speed every few runs.
template <OpArgs A>
void measure(benchmark::State& state, Machine& machine, Bed& bed, int num_threads, Bound bound,
             const A& args) {
  constexpr double kReferenceEvery = 0.1;  // seconds of the op
  double best = 1e30;
  double reference = 0;
  double since = kReferenceEvery;
  bed.run_seconds(args);
  for (auto unused : state) {
    (void)unused;
    if (since >= kReferenceEvery) {
      since = 0;
      const double speed = bound == Bound::kFlops ? machine.flops_per_second(num_threads)
                                                  : machine.bytes_per_second(num_threads);
      reference = std::max(reference, speed);
    }
    const double seconds = bed.run_seconds(args);
    since += seconds;
    best = std::min(best, seconds);
    state.SetIterationTime(seconds);
  }
  const Cost costs = cost(args);
  const double speed = (bound == Bound::kFlops ? costs.flops : costs.bytes) / best;
  state.counters[bound == Bound::kFlops ? "best_gflops" : "best_gbps"] = speed * 1e-9;
  state.counters[bound == Bound::kFlops ? "of_onednn" : "of_copy"] = speed / reference;
}

struct Setup {
  Machine& machine;
  int num_threads;
  DType type;
};

std::string name(const std::string& op, const Setup& setup) {
  return op + "/" + std::string(name_of(setup.type)) +
         "/threads:" + std::to_string(setup.num_threads);
}

// `make` gives the op's arguments from a bed.
template <class Make>
void add(const std::string& op, const Setup& setup, Bound bound, Make make) {
  benchmark::RegisterBenchmark(name(op, setup).c_str(),
                               [setup, bound, make](benchmark::State& state) {
                                 Bed bed(setup.num_threads);
                                 measure(state, setup.machine, bed, setup.num_threads, bound,
                                         make(bed));
                               })
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

constexpr std::int64_t kTokens = 1024;
constexpr std::int64_t kWidth = 768;
constexpr std::int64_t kVocabulary = 50257;

void add_linear(const std::string& layer, const Setup& setup, std::int64_t I, std::int64_t O) {
  const DType type = setup.type;
  const std::string shape = "/" + layer;
  add("linear_fwd" + shape, setup, Bound::kFlops, [=](Bed& bed) {
    return LinearFwd{.y = bed.alloc({kTokens, O}, type),
                     .x = bed.values({kTokens, I}, type),
                     .w = bed.values({O, I}, type),
                     .b = bed.values({O}, type)};
  });
  add("linear_bwd_input" + shape, setup, Bound::kFlops, [=](Bed& bed) {
    return LinearBwdInput{.dx = bed.alloc({kTokens, I}, type),
                          .dy = bed.values({kTokens, O}, type),
                          .w = bed.values({O, I}, type)};
  });
  add("linear_bwd_weight" + shape, setup, Bound::kFlops, [=](Bed& bed) {
    return LinearBwdWeight{.dw = bed.alloc({O, I}, DType::kF32),
                           .db = bed.alloc({O}, DType::kF32),
                           .dy = bed.values({kTokens, O}, type),
                           .x = bed.values({kTokens, I}, type)};
  });
}

void add_attention(const std::string& model, const Setup& setup, const AttentionShape& n) {
  const DType type = setup.type;
  const std::int64_t T = n.B * n.S;
  const std::int64_t width = (n.H + 2 * n.G) * n.D;
  add("attention_fwd/" + model, setup, Bound::kFlops, [=](Bed& bed) {
    return AttentionFwd{.o = bed.alloc({T, n.H * n.D}, type),
                        .lse = bed.alloc({n.B, n.H, n.S}, DType::kF32),
                        .qkv = bed.values({T, width}, type),
                        .slopes = {},
                        .sample_ids = bed.samples(n.B),
                        .step_state = bed.step_state(),
                        .shape = n};
  });
  add("attention_bwd/" + model, setup, Bound::kFlops, [=](Bed& bed) {
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

void add_norms(const Setup& setup) {
  const DType type = setup.type;
  const Shape rows = {kTokens, kWidth};
  add("norm_fwd", setup, Bound::kBytes, [=](Bed& bed) {
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
  add("norm_bwd", setup, Bound::kBytes, [=](Bed& bed) {
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

void add_activations(const Setup& setup) {
  const DType type = setup.type;
  const Shape inner = {kTokens, 4 * kWidth};
  add("gelu_fwd", setup, Bound::kBytes,
      [=](Bed& bed) { return GeluFwd{.y = bed.alloc(inner, type), .x = bed.values(inner, type)}; });
  add("gelu_bwd", setup, Bound::kBytes, [=](Bed& bed) {
    return GeluBwd{
        .dx = bed.alloc(inner, type), .dy = bed.values(inner, type), .x = bed.values(inner, type)};
  });
  const Shape both = {kTokens, 8 * kWidth};
  add("swiglu_fwd", setup, Bound::kBytes, [=](Bed& bed) {
    return SwigluFwd{.y = bed.alloc(inner, type), .gate_up = bed.values(both, type)};
  });
  add("swiglu_bwd", setup, Bound::kBytes, [=](Bed& bed) {
    return SwigluBwd{.d_gate_up = bed.alloc(both, type),
                     .dy = bed.values(inner, type),
                     .gate_up = bed.values(both, type)};
  });
}

void add_tokens(const Setup& setup) {
  const DType type = setup.type;
  add("rotary", setup, Bound::kBytes, [=](Bed& bed) {
    return Rotary{.qkv = bed.values({kTokens, 3 * kWidth}, type),
                  .positions = bed.ids(kTokens, kTokens),
                  .inv_freq = bed.values({32}, DType::kF32),
                  .H = 12,
                  .G = 12,
                  .direction = Rotate::kForward};
  });
  add("embedding_fwd", setup, Bound::kBytes, [=](Bed& bed) {
    return EmbeddingFwd{.y = bed.alloc({kTokens, kWidth}, type),
                        .ids = bed.ids(kTokens, kVocabulary),
                        .table = bed.values({kVocabulary, kWidth}, type),
                        .first_row = 0,
                        .write = Write::kSet};
  });
  add("embedding_bwd", setup, Bound::kBytes, [=](Bed& bed) {
    return EmbeddingBwd{.dtable = bed.alloc({kVocabulary, kWidth}, DType::kF32),
                        .dy = bed.values({kTokens, kWidth}, type),
                        .ids = bed.ids(kTokens, kVocabulary),
                        .first_row = 0};
  });
  const Shape logits = {kTokens, kVocabulary};
  add("softmax_part", setup, Bound::kBytes, [=](Bed& bed) {
    return SoftmaxPart{.part = bed.alloc({kTokens, 3}, DType::kF32),
                       .logits = bed.values(logits, type),
                       .labels = bed.ids(kTokens, kVocabulary),
                       .first_column = 0,
                       .valid = kVocabulary};
  });
  add("cross_entropy_bwd", setup, Bound::kBytes, [=](Bed& bed) {
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

void add_elementwise(const Setup& setup) {
  const DType type = setup.type;
  const Shape many = {std::int64_t{16} << 20};
  add("add", setup, Bound::kBytes, [=](Bed& bed) {
    return Add{
        .y = bed.alloc(many, type), .a = bed.values(many, type), .b = bed.values(many, type)};
  });
  add("accumulate", setup, Bound::kBytes, [=](Bed& bed) {
    return Accumulate{.y = bed.alloc(many, DType::kF32), .x = bed.values(many, type)};
  });
  add("copy_to_f32", setup, Bound::kBytes, [=](Bed& bed) {
    return Copy{.y = bed.alloc(many, DType::kF32), .x = bed.values(many, type)};
  });
  add("zero", setup, Bound::kBytes, [=](Bed& bed) { return Zero{.y = bed.alloc(many, type)}; });
  add("dropout", setup, Bound::kBytes, [=](Bed& bed) {
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
  add("count_non_finite", setup, Bound::kBytes, [=](Bed& bed) {
    return CountNonFinite{.count = bed.alloc({1}, DType::kI64), .x = bed.values(many, type)};
  });
  if (type == DType::kF32) {
    add("squared_norm", setup, Bound::kBytes, [=](Bed& bed) {
      return SquaredNorm{.sum = bed.alloc({kNormLimbs}, DType::kI64), .g = bed.values(many, type)};
    });
  }
  add("adamw", setup, Bound::kBytes, [=](Bed& bed) {
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

void add_all(const Setup& setup) {
  add_linear("768x768", setup, kWidth, kWidth);
  add_linear("768x2304", setup, kWidth, 3 * kWidth);
  add_linear("768x3072", setup, kWidth, 4 * kWidth);
  add_linear("3072x768", setup, 4 * kWidth, kWidth);
  add_linear("768x50257", setup, kWidth, kVocabulary);
  add_attention("gpt2", setup, attention_shape(4, 256, 12, 12, 64, 0));
  add_attention("gpt2_dropout", setup, attention_shape(4, 256, 12, 12, 64, 0.1));
  add_attention("llama", setup, attention_shape(1, 1024, 16, 4, 128, 0));
  add_norms(setup);
  add_activations(setup);
  add_tokens(setup);
  add_elementwise(setup);
}

}  // namespace
}  // namespace orthant

int main(int argc, char** argv) {
  orthant::Machine machine;
  std::vector<int> thread_counts = {1};
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  if (cores > 1) thread_counts.push_back(cores);
  for (const int num_threads : thread_counts) {
    for (const orthant::DType type : {orthant::DType::kF32, orthant::DType::kBF16}) {
      orthant::add_all({.machine = machine, .num_threads = num_threads, .type = type});
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
