#include "train/plan_memory.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <numeric>

#include "base/check.h"
#include "base/text.h"
#include "train/run_schedule.h"

namespace orthant {

RankConfig rank_config(const RunConfig& config) {
  const std::int64_t per_micro = config.layout.micro_batch * config.layout.dp();
  const std::int64_t most = config.max_global_batch();
  std::vector<int> other_micros;
  for (const std::int64_t batch : config.step_batches()) {
    if (batch != most) other_micros.push_back(static_cast<int>(batch / per_micro));
  }
  return {.model = config.model,
          .layout = config.layout,
          .seq_length = config.train.seq_length,
          .compute = config.compute_type(),
          .moments = config.optimizer.moments == "bf16" ? DType::kBF16 : DType::kF32,
          .grads = config.precision.grad_accum == "bf16" ? DType::kBF16 : DType::kF32,
          .optimizer = config.adamw(),
          .max_norm = config.optimizer.clip_grad,
          .seed = static_cast<std::uint64_t>(config.train.seed),
          .max_micros = static_cast<int>(most / per_micro),
          .other_micros = std::move(other_micros),
          .target = target_of(config.device.kind, config.train.deterministic)};
}

int eval_micros(const RunConfig& config) {
  if (config.train.eval_interval == 0) return 0;
  const std::int64_t samples = config.train.eval_steps * config.train.global_batch;
  return static_cast<int>(samples / (config.layout.micro_batch * config.layout.dp()));
}

std::int64_t RunPlan::total_bytes() const {
  return std::accumulate(kind_of.begin(), kind_of.end(), std::int64_t{0},
                         [this](std::int64_t sum, int kind) {
                           const MemoryPlan& memory = kinds[static_cast<std::size_t>(kind)].memory;
                           return sum + memory.device_bytes() + memory.host_bytes();
                         });
}

std::int64_t RunPlan::fullest_bytes() const {
  std::int64_t most = 0;
  for (const DryRun& kind : kinds) {
    most = std::max(most, kind.memory.device_bytes());
  }
  return most;
}

RunPlan plan_run(const RankConfig& config, int num_eval_micros) {
  RunPlan plan;
  Programs programs(schedule_choice(config.layout));
  const MeshShape mesh = mesh_shape(config.layout);
  std::map<std::pair<int, bool>, int> known;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const auto coords = mesh.coords_of(rank);
    const int stage = coords[static_cast<std::size_t>(Axis::kPp)];
    const bool first_tp = coords[static_cast<std::size_t>(Axis::kTp)] == 0;
    const auto [kind, is_new] =
        known.emplace(std::pair(stage, first_tp), static_cast<int>(plan.kinds.size()));
    if (is_new) plan.kinds.push_back(dry_run(config, rank, num_eval_micros, &programs));
    plan.kind_of.push_back(kind->second);
  }
  return plan;
}

std::string memory_table(const RankConfig& config, const RunPlan& plan) {
  std::vector<std::vector<std::string>> rows = {{"ranks"}};
  for (int i = 0; i < kNumMemClasses; ++i) {
    rows[0].emplace_back(name_of(static_cast<MemClass>(i)));
  }
  rows[0].emplace_back("total");
  const MeshShape mesh = mesh_shape(config.layout);
  for (std::size_t kind = 0; kind < plan.kinds.size(); ++kind) {
    const auto count = std::count(plan.kind_of.begin(), plan.kind_of.end(), static_cast<int>(kind));
    const auto first = std::find(plan.kind_of.begin(), plan.kind_of.end(), static_cast<int>(kind)) -
                       plan.kind_of.begin();
    const auto coords = mesh.coords_of(static_cast<int>(first));
    const int tp = coords[static_cast<std::size_t>(Axis::kTp)];
    std::vector<std::string> row = {fmt::format("{} x stage {}{}", count,
                                                coords[static_cast<std::size_t>(Axis::kPp)],
                                                config.layout.tp == 1 ? ""
                                                : tp == 0             ? ", tp 0"
                                                                      : ", tp 1..")};
    const MemoryPlan& memory = plan.kinds[kind].memory;
    for (const std::int64_t bytes : memory.by_class()) {
      row.push_back(format_bytes(bytes));
    }
    row.push_back(format_bytes(memory.device_bytes()));
    rows.push_back(std::move(row));
  }
  return format_table(rows);
}

std::int64_t available_bytes(std::string_view kind) {
  if (kind != "cuda") return available_host_bytes();
  const std::vector<GpuFacts> found = gpus();
  if (found.empty()) {
    fail_user(
        "device.kind='cuda' needs an NVIDIA GPU with its driver and a build with CUDA; none is "
        "found here, use 'cpu'");
  }
  // What the driver and the libraries take for their kernels as they load them.
  constexpr std::int64_t kReserve = std::int64_t{1} << 30;
  std::int64_t bytes = 0;
  for (const GpuFacts& gpu : found) {
    bytes += gpu.free_bytes - kReserve;
  }
  return bytes;
}

std::int64_t available_host_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::int64_t kib = 0;
  std::string unit;
  while (file >> key >> kib) {
    std::getline(file, unit);
    if (key == "MemAvailable:") return kib * 1024;
  }
  fail_run("/proc/meminfo does not say MemAvailable; the memory of this host is not known");
}

void require_fit(const RankConfig& config, const RunPlan& plan, std::int64_t available) {
  const std::int64_t needed = plan.total_bytes();
  if (needed <= available) return;
  ClassBytes sum{};
  for (const int kind : plan.kind_of) {
    const ClassBytes part = plan.kinds[static_cast<std::size_t>(kind)].memory.by_class();
    std::transform(sum.begin(), sum.end(), part.begin(), sum.begin(), std::plus<>());
  }
  std::vector<int> order(kNumMemClasses);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    return sum[static_cast<std::size_t>(a)] > sum[static_cast<std::size_t>(b)];
  });
  std::string largest;
  for (int i = 0; i < 3; ++i) {
    largest += fmt::format(
        "{}{} {}", i == 0 ? "" : ", ",
        name_of(static_cast<MemClass>(order[static_cast<std::size_t>(i)])),
        format_bytes(sum[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])]));
  }
  throw Error(
      Fault::kPlan,
      fmt::format(
          "the {} ranks of this run need {}, {} are free ({}); lower layout.micro_batch={} or "
          "train.seq_length={}, or use layout.zero_stage=1",
          plan.kind_of.size(), format_bytes(needed), format_bytes(available), largest,
          config.layout.micro_batch, config.seq_length));
}

}  // namespace orthant
