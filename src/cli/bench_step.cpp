// orthant bench step: one rank's training step on random tokens, against oneDNN's own product in
// the same run, and what each op of it costs.
#include <algorithm>
#include <map>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "cli/bench_random_step.h"
#include "comm/backends.h"
#include "ops/cpu/onednn_reference.h"
#include "train/fit.h"
#include "train/rank.h"
#include "train/weights.h"

namespace orthant {
namespace {

constexpr int kReferenceSize = 1024;
constexpr int kReferenceRuns = 5;  // before and after every step; the best of all counts

// Adds up what the ops of one step take, by name, or by name and place.
class CostTable final : public OpsObserver {
 public:
  struct Row {
    std::int64_t calls = 0;
    double seconds = 0;
    Cost cost;
  };
  CostTable(const StepBench& bench, const Ledger& ledger) : bench_(bench), ledger_(ledger) {}

  void before(std::string_view op, const Cost& cost) override {
    std::string name(op);
    if (bench_.by_place) name += " " + kind_of_place(ledger_.where());
    row_ = &rows_[name];
    ++row_->calls;
    row_->cost.flops += cost.flops;
    row_->cost.bytes += cost.bytes;
    start_ = seconds_now(bench_.num_threads);
  }
  void after() override { row_->seconds += seconds_now(bench_.num_threads) - start_; }

  std::map<std::string, Row> take() { return std::exchange(rows_, {}); }

 private:
  const StepBench& bench_;
  const Ledger& ledger_;
  std::map<std::string, Row> rows_;
  Row* row_ = nullptr;
  double start_ = 0;
};

struct Measured {
  std::vector<double> step_seconds;
  double best_seconds = 1e30;
  std::map<std::string, CostTable::Row> rows;  // of the best step
  double reference_flops = 0;                  // a second
  DType reference_type = DType::kF32;
};

Measured measure(const StepBench& bench, Rank& rank, const RandomStep& step) {
  Measured measured;
  OneDnnReference reference(kReferenceSize, bench.config.compute_type(), bench.num_threads);
  measured.reference_type = reference.type();
  const auto measure_reference = [&] {
    for (int i = 0; i < kReferenceRuns; ++i) {
      const double start = seconds_now(bench.num_threads);
      reference.run();
      const double seconds = seconds_now(bench.num_threads) - start;
      measured.reference_flops = std::max(measured.reference_flops, reference.flops() / seconds);
    }
  };
  const int num_micros = static_cast<int>(step.micros().size());
  constexpr int kWarmUp = 2;
  CostTable table(bench, rank.ledger());
  for (int i = 1; i <= kWarmUp + bench.num_steps; ++i) {
    measure_reference();
    rank.observe_ops(i > kWarmUp ? &table : nullptr);
    const double start = seconds_now(bench.num_threads);
    rank.step(i, bench.config.optimizer.lr, step.micros(), num_micros);
    const double seconds = seconds_now(bench.num_threads) - start;
    if (i <= kWarmUp) continue;
    measured.step_seconds.push_back(seconds);
    auto rows = table.take();
    if (seconds < measured.best_seconds) {
      measured.best_seconds = seconds;
      measured.rows = std::move(rows);
    }
  }
  measure_reference();
  rank.observe_ops(nullptr);
  return measured;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::string number(double value, int digits) {
  return fmt::format("{:.{}f}", value, digits);
}

// Rows by time; what no op explains comes last.
void write_table(const Measured& measured, BenchResult& result) {
  std::vector<std::pair<std::string, CostTable::Row>> rows(measured.rows.begin(),
                                                           measured.rows.end());
  std::sort(rows.begin(), rows.end(),
            [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  std::vector<std::vector<std::string>> text = {
      {"op", "calls", "ms", "share %", "GFLOP/s", "GB/s"}};
  OrderedJson json = OrderedJson::array();
  double sum = 0;
  for (const auto& [name, row] : rows) {
    sum += row.seconds;
    const double gflops = row.cost.flops * 1e-9 / row.seconds;
    const double gbps = row.cost.bytes * 1e-9 / row.seconds;
    const double share = row.seconds / measured.best_seconds;
    text.push_back({name, fmt::format("{}", row.calls), number(row.seconds * 1e3, 2),
                    number(share * 100, 1), number(gflops, 1), number(gbps, 1)});
    json.push_back({{"op", name},
                    {"calls", row.calls},
                    {"ms", row.seconds * 1e3},
                    {"share", share},
                    {"gflops", gflops},
                    {"gb_per_s", gbps}});
  }
  const double rest = measured.best_seconds - sum;
  text.push_back(
      {"all ops", "", number(sum * 1e3, 2), number(sum / measured.best_seconds * 100, 1), "", ""});
  text.push_back({"outside ops", "", number(rest * 1e3, 2),
                  number(rest / measured.best_seconds * 100, 1), "", ""});
  result.text += format_table(text);
  result.json["ops"] = json;
  result.json["outside_ops_ms"] = rest * 1e3;
}

BenchResult report(const StepBench& bench, const Measured& measured) {
  const RunConfig& config = bench.config;
  const double flops = sequence_flops(config.model, config.train.seq_length) *
                       static_cast<double>(config.train.global_batch);
  const double seconds = median(measured.step_seconds);
  const double reference = measured.reference_flops;
  const bool other_type = measured.reference_type != config.compute_type();
  BenchResult result;
  result.json = {{"threads", bench.num_threads},
                 {"compute", config.precision.compute},
                 {"seq_length", config.train.seq_length},
                 {"sequences", config.train.global_batch},
                 {"steps", bench.num_steps},
                 {"step_ms", seconds * 1e3},
                 {"best_step_ms", measured.best_seconds * 1e3},
                 {"model_gflop_per_step", flops * 1e-9},
                 {"model_gflops", flops * 1e-9 / seconds},
                 {"onednn_type", name_of(measured.reference_type)},
                 {"onednn_gflops", reference * 1e-9},
                 {"ratio", flops / seconds / reference},
                 {"best_ratio", flops / measured.best_seconds / reference}};
  result.text = fmt::format(
      "{} steps of {} sequences of {} tokens in {}, {}: median {:.1f} ms, best {:.1f} ms\n"
      "model:                   {:8.1f} GFLOP/s (median), {:.1f} (best): {:.1f} GFLOP a step\n"
      "oneDNN's {}^3 in {:<5}: {:8.1f} GFLOP/s (best of {} before and after each step){}\n"
      "model / oneDNN:          {:8.1f} % (median), {:.1f} % (best)\n"
      "The best step by op:\n",
      bench.num_steps, config.train.global_batch, config.train.seq_length, config.precision.compute,
      bench.num_threads == 1 ? "1 thread (its processor time)"
                             : fmt::format("{} threads", bench.num_threads),
      seconds * 1e3, measured.best_seconds * 1e3, flops * 1e-9 / seconds,
      flops * 1e-9 / measured.best_seconds, flops * 1e-9, kReferenceSize,
      name_of(measured.reference_type), reference * 1e-9, kReferenceRuns,
      other_type ? ";\noneDNN has no fast bf16 product for this processor, so this is f32's" : "",
      flops / seconds / reference * 100, flops / measured.best_seconds / reference * 100);
  write_table(measured, result);
  return result;
}

}  // namespace

BenchResult bench_step(const StepBench& bench) {
  const RunConfig& config = bench.config;
  const RankConfig rank_of = rank_config(config);
  const RunPlan plan = plan_run(rank_of, 0);
  require_fit({.config = config}, plan, limit_of_this_host(config.layout));
  ThreadWorld world(1, config.layout.deadline_s);
  const std::unique_ptr<Device> device = make_device(config.device.kind, 0);
  Rank rank(rank_of,
            {.device = *device,
             .ops = config.device.kind,
             .join_world = [&](const CommParts& parts) { return world.join(0, parts); },
             .num_threads = bench.num_threads},
            plan.of(0).whole);
  rank.store().load(*find_weights(config).source);
  const RandomStep step(config, rank_of.max_micros);
  return report(bench, measure(bench, rank, step));
}

}  // namespace orthant
