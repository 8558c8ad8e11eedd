// orthant bench step on a GPU: tokens a second over whole steps, then one step by op against the
// time that its products or its bytes must take. With several ranks the first measures, and the
// others say how long their ops were at work.
#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "cli/bench_random_step.h"
#include "cli/gpu_cost_table.h"
#include "mem/gpus.h"
#include "plan/plan.h"
#include "train/algorithm_file.h"
#include "train/peak.h"
#include "train/rank.h"
#include "train/run_ranks.h"

namespace orthant {
namespace {

using Clock = std::chrono::steady_clock;

// Copies of a table over and over.
void fill(Ops& ops, const Tensor& to, const Tensor& table) {
  for (std::int64_t at = 0; at < to.count(); at += table.count()) {
    const std::int64_t count = std::min(table.count(), to.count() - at);
    ops.run(Copy{.y = to.flat(at, count), .x = table.flat(0, count)});
  }
}

// Weights of usual sizes straight from a short table: the source of a run would take minutes for
// billions. The first update rounds them to the compute type; values of split masters are all of
// them.
void fill_weights(Rank& rank, Device& device) {
  constexpr std::int64_t kTable = std::int64_t{1} << 20;
  Ledger ledger;
  InFlight in_flight;
  Arena memory(device, in_flight, "table", 2 * kTable * 4);
  const auto ops = make_ops("cuda", {.ledger = ledger,
                                     .in_flight = in_flight,
                                     .work = memory,
                                     .target = Target::kCuda,
                                     .queue = device.queue()});
  std::vector<float> values(static_cast<std::size_t>(kTable));
  const auto table_of = [&](auto value_at) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = value_at(i);
    }
    const Tensor table = memory.alloc({kTable}, DType::kF32, MemClass::kWork);
    device.to_device(table, std::as_bytes(std::span(values)));
    return table;
  };
  const Tensor normals =
      table_of([](std::size_t i) { return static_cast<float>(0.02 * normal(1, 2, i)); });
  const Tensor ones = table_of([](std::size_t) { return 1.0F; });
  const auto fill_one = [&](const Tensor& master, const Tensor& value, const Tensor& table) {
    fill(*ops, master.dtype == DType::kF32 ? master : value, table);
    ledger.restart();
  };
  // What others save is filled too: zeros would be multiplied faster.
  for (const ParamStore::Segment& segment : rank.store().segments()) {
    fill_one(segment.master, segment.value, segment.decays ? normals : ones);
  }
  for (const ParamStore::Owned& owned : rank.store().owned()) {
    fill_one(owned.master, owned.value, owned.spec->name.ends_with("norm.weight") ? ones : normals);
  }
}

struct GpuStep {
  std::vector<double> seconds;                 // of each measured step
  std::vector<double> queued_seconds;          // until the host had queued them
  std::vector<double> seconds_without_update;  // where that is measured
  double loss = 0;                             // of the last
  double observed_seconds = 0;                 // of the step by op
  GpuCosts costs;
};

// The first rank says when it is enough: its vote reaches all ranks with the step.
GpuStep measure(const StepBench& bench, Rank& rank, bool is_first, const RandomStep& random) {
  GpuStep result;
  const int num_micros = static_cast<int>(random.micros().size());
  std::int64_t number = 0;
  bool stops = false;
  double queued_s = 0;
  const auto step = [&](bool updates) {
    const Clock::time_point start = Clock::now();
    ++number;
    const StepResult of_step =
        updates ? rank.step(number, bench.config.optimizer.lr, random.micros(), num_micros)
                : rank.gradients(number, random.micros(), num_micros);
    result.loss = of_step.loss;
    stops = of_step.stops;
    queued_s = std::chrono::duration<double>(of_step.queued - start).count();
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const auto measure_for = [&](double seconds, bool updates) {
    constexpr std::size_t kFewest = 3;
    const bool is_alone = bench.config.layout.ranks == 1;
    std::vector<double> steps;
    double sum = 0;
    for (bool is_last = false; !is_last; sum += steps.back()) {
      const double next = steps.empty() ? 0 : steps.back();
      const bool is_enough = sum + next >= seconds && steps.size() + 1 >= kFewest;
      if (is_first && is_enough && !is_alone) rank.vote_stop();
      steps.push_back(step(updates));
      if (updates) result.queued_seconds.push_back(queued_s);
      is_last = is_alone ? is_enough : stops;
    }
    return steps;
  };
  double warm_s = 0;
  while (is_first && (warm_s < bench.warm_up_s || number < 2)) {
    warm_s += step(true);
  }
  result.seconds = measure_for(bench.measure_s, true);
  const std::unique_ptr<QueueTimer> timer = rank.device().timer();
  GpuCostTable table(*timer, rank.ledger(), bench.by_place);
  rank.observe_ops(&table);
  result.observed_seconds = step(true);
  result.costs = table.take();
  rank.observe_ops(nullptr);
  if (!bench.without_update) return result;
  step(false);  // what the last step left to be updated
  result.seconds_without_update = measure_for(bench.measure_s / 2, false);
  return result;
}

std::string number(double value, int digits) {
  return fmt::format("{:.{}f}", value, digits);
}

using Row = GpuCosts::Row;

std::vector<std::pair<std::string, Row>> by_time(const std::map<std::string, Row>& rows) {
  std::vector<std::pair<std::string, Row>> sorted(rows.begin(), rows.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  return sorted;
}

Row sum_of(const std::map<std::string, Row>& rows) {
  Row all;
  for (const auto& [name, row] : rows) {
    all.calls += row.calls;
    all.seconds += row.seconds;
    all.floor_seconds += row.floor_seconds;
  }
  return all;
}

// The ops by time, what the GPU waited for between them, and what neither explains.
void write_table(const GpuStep& step, BenchResult& result) {
  std::vector<std::vector<std::string>> text = {{"op", "calls", "ms", "share %", "floor ms"}};
  const auto add = [&](const std::string& name, const Row& row) {
    text.push_back({name, fmt::format("{}", row.calls), number(row.seconds * 1e3, 2),
                    number(row.seconds / step.observed_seconds * 100, 1),
                    number(row.floor_seconds * 1e3, 2)});
  };
  OrderedJson ops = OrderedJson::array();
  for (const auto& [name, row] : by_time(step.costs.ops)) {
    add(name, row);
    ops.push_back({{"op", name},
                   {"calls", row.calls},
                   {"ms", row.seconds * 1e3},
                   {"floor_ms", row.floor_seconds * 1e3}});
  }
  OrderedJson waits = OrderedJson::array();
  const Row all = sum_of(step.costs.ops);
  add("all ops", all);
  for (const auto& [name, row] : by_time(step.costs.waits)) {
    add(name, row);
    waits.push_back({{"for", name}, {"times", row.calls}, {"ms", row.seconds * 1e3}});
  }
  add("the rest",
      {.seconds = step.observed_seconds - all.seconds - sum_of(step.costs.waits).seconds});
  result.text += format_table(text);
  result.json["ops"] = ops;
  result.json["waits"] = waits;
}

double median_of(std::vector<double>& values) {  // leaves them in order
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// What was said before the run, and what came.
struct Prediction {
  std::string machine;
  double step_s = 0;
  std::int64_t bytes = 0;  // of the device, libraries included
};

// Nothing where the machine is not named or has no rates.
std::optional<Prediction> predict(const StepBench& bench) {
  if (bench.machine.empty()) return std::nullopt;
  const Plan plan =
      make_plan({.job = {.config = bench.config}, .machine = load_machine(bench.machine)});
  if (!plan.time) {
    fail_user("--machine={}: it has no {} under [measured]; use another", bench.machine,
              plan.missing_rate);
  }
  return Prediction{.machine = bench.machine,
                    .step_s = plan.time->step_s,
                    .bytes = fullest_bytes(plan.request.job, plan.memory, plan.limit.libraries)};
}

std::string percent_more(double measured, double predicted) {
  return fmt::format("{:+.1f} %", (measured / predicted - 1) * 100);
}

struct Memory {
  std::int64_t planned;
  std::int64_t high_water;
  std::int64_t host;
  std::int64_t used;  // by the driver's count
};

void add_prediction(const Prediction& said, double step_s, std::int64_t used, BenchResult& result) {
  result.json["predicted_step_ms"] = said.step_s * 1e3;
  result.json["predicted_bytes"] = said.bytes;
  result.text += fmt::format(
      "predicted by machine {}: {:.1f} ms (measured {}), {} with libraries (driver's count {})\n",
      said.machine, said.step_s * 1e3, percent_more(step_s, said.step_s), format_bytes(said.bytes),
      percent_more(static_cast<double>(used), static_cast<double>(said.bytes)));
}

BenchResult report(const StepBench& bench, GpuStep step, const Memory& memory,
                   const std::optional<Prediction>& said) {
  const RunConfig& config = bench.config;
  const auto tokens = static_cast<double>(config.train.global_batch * config.train.seq_length);
  const double flops = sequence_flops(config.model, config.train.seq_length) *
                       static_cast<double>(config.train.global_batch);
  const double median = median_of(step.seconds);
  const double queued = median_of(step.queued_seconds);
  const double mfu =
      flops / median / peak_flops("cuda", config.compute_type(), config.layout.ranks);
  const GpuFacts gpu = gpu_facts().front();
  BenchResult result;
  result.json = {{"gpu", gpu.name},
                 {"ranks", config.layout.ranks},
                 {"compute", config.precision.compute},
                 {"seq_length", config.train.seq_length},
                 {"micro_batch", config.layout.micro_batch},
                 {"sequences", config.train.global_batch},
                 {"steps", step.seconds.size()},
                 {"step_ms", median * 1e3},
                 {"best_step_ms", step.seconds.front() * 1e3},
                 {"queued_ms", queued * 1e3},
                 {"tokens_per_s", tokens / median},
                 {"mfu", mfu},
                 {"loss", step.loss},
                 {"planned_bytes", memory.planned},
                 {"high_water_bytes", memory.high_water},
                 {"host_bytes", memory.host},
                 {"used_bytes", memory.used}};
  result.text = fmt::format(
      "{}: {} steps of {} sequences of {} tokens, micro-batches of {}, {}, after {:.0f} s\n"
      "median {:.1f} ms (best {:.1f}): {:.0f} tokens/s, {:.1f} % of the peak; loss {:.4f}\n"
      "the host had queued a step after {:.1f} ms\n"
      "memory: {} planned, {} high water, {} in use by the driver's count; {} of the host\n",
      gpu.name, step.seconds.size(), config.train.global_batch, config.train.seq_length,
      config.layout.micro_batch, config.precision.compute, bench.warm_up_s, median * 1e3,
      step.seconds.front() * 1e3, tokens / median, mfu * 100, step.loss, queued * 1e3,
      format_bytes(memory.planned), format_bytes(memory.high_water), format_bytes(memory.used),
      format_bytes(memory.host));
  if (said) add_prediction(*said, median, memory.used, result);
  if (bench.without_update) {
    const double without = median_of(step.seconds_without_update);
    result.json["step_ms_without_update"] = without * 1e3;
    result.text += fmt::format(
        "without its update the step takes {:.1f} ms: with it {:.1f} % of those tokens/s\n",
        without * 1e3, without / median * 100);
  }
  result.text += fmt::format(
      "One step by op ({:.1f} ms while every op is timed); floors are products at {:.0f} TFLOP/s "
      "or bytes at {:.2f} TB/s:\n",
      step.observed_seconds * 1e3, GpuCosts::kProductFlops * 1e-12, GpuCosts::kCopyBytes * 1e-12);
  write_table(step, result);
  return result;
}

}  // namespace

BenchResult bench_gpu_step(const StepBench& bench, ProcessWorld* world) {
  const RunConfig& config = bench.config;
  const RankConfig rank_of = rank_config(config);
  const RunPlan plan = plan_run(rank_of, 0);
  std::optional<Prediction> said;
  AlgorithmFile algorithms(named_algorithms(config));
  agree(world, [&] {
    algorithms.require_can_be_made();
    if (has_first_rank(world)) algorithms.read();
    require_fit({.config = config}, plan, memory_limit(config, world));
    said = predict(bench);
  });
  const int gpu = world == nullptr ? 0 : world->local_rank();
  BenchResult result;
  const auto measure_on = [&](Rank& rank, int r) {
    fill_weights(rank, rank.device());
    algorithms.settle(rank, world == nullptr);
    const RandomStep random(config, rank_of.max_micros);
    GpuStep step = measure(bench, rank, r == 0, random);
    const std::optional<std::string> kept = algorithms.keep(rank, world == nullptr);
    if (kept) fmt::print(stderr, "{}\n", *kept);
    if (r != 0) {
      fmt::print("rank {}: ops {:.1f} ms of a step of {:.1f} ms\n", r,
                 sum_of(step.costs.ops).seconds * 1e3, step.observed_seconds * 1e3);
      return;
    }
    const Memory memory = {.planned = plan.of(r).whole.device_bytes(),
                           .high_water = rank.memory().device_bytes(),
                           .host = rank.memory().host_bytes(),
                           .used = gpu_facts().front().total_bytes - free_gpu_bytes(gpu)};
    result = report(bench, std::move(step), memory, said);
  };
  run_ranks(rank_of, plan, "cuda", world, measure_on, algorithms.algorithms());
  if (world != nullptr && !world->links().empty()) {
    result.text = fmt::format("{} ranks, by {}\n", world->size(), world->links()) + result.text;
  }
  return result;
}

}  // namespace orthant
