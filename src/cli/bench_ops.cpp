// orthant bench ops: each op of the cpu backend at the shapes of GPT-2 124M and a LLaMA, as a
// fraction of what the machine gives: matrix ops of oneDNN's product of 1024^3, others of a copy of
// memory. The machine is measured in turn with every op, since its speed changes; each side's best
// run counts.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "cli/bench.h"
#include "cli/bench_bed.h"
#include "cli/op_samples.h"
#include "ops/cpu/onednn_reference.h"

namespace orthant {
namespace {

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

void add_all(OpsMeter& meter) {
  constexpr std::int64_t kTokens = 1024;
  constexpr std::int64_t kWidth = 768;
  constexpr std::int64_t kVocabulary = 50257;
  for (const auto& [inputs, outputs] : {std::pair(kWidth, kWidth),
                                        {kWidth, 3 * kWidth},
                                        {kWidth, 4 * kWidth},
                                        {4 * kWidth, kWidth},
                                        {kWidth, kVocabulary}}) {
    add_product(meter, fmt::format("{}x{}", inputs, outputs),
                {.tokens = kTokens, .inputs = inputs, .outputs = outputs});
  }
  AttentionShape gpt2 = attention_sample(4, 256, 12, 12, 64);
  add_attention(meter, "gpt2", gpt2);
  gpt2.dropout = 0.1;
  add_attention(meter, "gpt2_dropout", gpt2);
  add_attention(meter, "llama", attention_sample(1, 1024, 16, 4, 128));
  const SampleSizes sizes = {.tokens = kTokens,
                             .width = kWidth,
                             .vocabulary = kVocabulary,
                             .elements = std::int64_t{16} << 20};
  add_norms(meter, sizes);
  add_activations(meter, sizes);
  add_tokens(meter, sizes);
  add_elementwise(meter, sizes);
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
