#include "train/plan_memory.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/text.h"
#include "train/run_schedule.h"

namespace orthant {
namespace {

// The first rank of a kind.
int first_of(const RunPlan& plan, int kind) {
  const auto found = std::find(plan.kind_of.begin(), plan.kind_of.end(), kind);
  return static_cast<int>(found - plan.kind_of.begin());
}

// "48 x stage 3, tp 1..7", "12 x stage 0, tp 2, 4, 6"
std::string kind_title(const LayoutConfig& layout, const RunPlan& plan, int kind) {
  const int first = first_of(plan, kind);
  const auto coords = mesh_shape(layout).coords_of(first);
  const auto count = std::count(plan.kind_of.begin(), plan.kind_of.end(), kind);
  std::string title =
      fmt::format("{} x stage {}", count, coords[static_cast<std::size_t>(Axis::kPp)]);
  if (layout.tp == 1) return title;
  std::vector<std::string> members;
  const int own = coords[static_cast<std::size_t>(Axis::kTp)];
  for (int tp = own; tp < layout.tp; ++tp) {  // neighbouring ranks
    if (plan.kind_of[static_cast<std::size_t>(first + tp - own)] != kind) continue;
    members.push_back(fmt::format("{}", tp));
  }
  const bool is_run = members.size() > 2 && own + static_cast<int>(members.size()) == layout.tp;
  return title + ", tp " + (is_run ? fmt::format("{}..{}", own, layout.tp - 1) : join(members));
}

// All kinds, or the ends and the fullest of many.
std::vector<int> shown_kinds(const RunPlan& plan) {
  constexpr int kAll = 16;
  constexpr int kEnds = 4;
  const int num_kinds = static_cast<int>(plan.kinds.size());
  int fullest = 0;
  for (int kind = 0; kind < num_kinds; ++kind) {
    const auto bytes = [&plan](int k) {
      return plan.kinds[static_cast<std::size_t>(k)].whole.device_bytes();
    };
    if (bytes(kind) > bytes(fullest)) fullest = kind;
  }
  std::vector<int> shown;
  for (int kind = 0; kind < num_kinds; ++kind) {
    const bool is_end = kind < kEnds || kind >= num_kinds - kEnds;
    if (num_kinds <= kAll || is_end || kind == fullest) shown.push_back(kind);
  }
  return shown;
}

}  // namespace

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
          .master = config.precision.master == "split" ? DType::kI16 : DType::kF32,
          .moments = config.optimizer.moments == "bf16" ? DType::kBF16 : DType::kF32,
          .grads = config.precision.grad_accum == "bf16" ? DType::kBF16 : DType::kF32,
          .optimizer = config.adamw(),
          .max_norm = config.optimizer.clip_grad,
          .seed = static_cast<std::uint64_t>(config.train.seed),
          .max_micros = static_cast<int>(most / per_micro),
          .other_micros = std::move(other_micros),
          .target = target_of(config.device.kind, config.train.deterministic),
          .by_document = !config.data.cross_documents && config.data.max_documents != 1};
}

RankConfig rank_config(const Job& job) {
  RankConfig rank = rank_config(job.config);
  rank.purpose = job.purpose;
  if (job.purpose == Purpose::kTrain) return rank;
  rank.max_micros = eval_micros(job);
  rank.other_micros.clear();
  return rank;
}

Job evaluation_of(const RunConfig& config, bool wants_logits) {
  const std::int64_t rows = config.train.global_batch * config.train.seq_length;
  const auto float_bytes = static_cast<std::int64_t>(sizeof(float));
  return {.config = config,
          .purpose = Purpose::kInfer,
          .logits_bytes = wants_logits ? rows * (config.model.vocab + 1) * float_bytes : 0};
}

int eval_micros(const Job& job) {
  if (job.purpose == Purpose::kTrain) return eval_micros(job.config);
  const LayoutConfig& layout = job.config.layout;
  return static_cast<int>(job.config.train.global_batch / (layout.micro_batch * layout.dp()));
}

int eval_micros(const RunConfig& config) {
  if (config.train.eval_interval == 0) return 0;
  const std::int64_t samples = config.train.eval_steps * config.train.global_batch;
  return static_cast<int>(samples / (config.layout.micro_batch * config.layout.dp()));
}

std::int64_t RunPlan::total_bytes() const {
  return std::accumulate(kind_of.begin(), kind_of.end(), std::int64_t{0},
                         [this](std::int64_t sum, int kind) {
                           const MemoryPlan& memory = kinds[static_cast<std::size_t>(kind)].whole;
                           return sum + memory.device_bytes() + memory.host_bytes();
                         });
}

std::int64_t RunPlan::fullest_bytes() const {
  std::int64_t most = 0;
  for (const DryMemory& kind : kinds) {
    most = std::max(most, kind.whole.device_bytes());
  }
  return most;
}

RunPlan plan_run(const RankConfig& config, int num_eval_micros, const StepReader& read) {
  RunPlan plan;
  Programs programs(schedule_choice(config.layout));
  const MeshShape mesh = mesh_shape(config.layout);
  const int copies = kv_copies(config.model, config.layout);
  std::map<std::array<int, 3>, int> known;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const auto coords = mesh.coords_of(rank);
    const int stage = coords[static_cast<std::size_t>(Axis::kPp)];
    const int tp = coords[static_cast<std::size_t>(Axis::kTp)];
    const std::array<int, 3> key = {stage, tp == 0 ? 1 : 0, tp % copies == 0 ? 1 : 0};
    const auto [kind, is_new] = known.emplace(key, static_cast<int>(plan.kinds.size()));
    if (is_new) {
      plan.kinds.push_back(dry_run_memory(config, rank, num_eval_micros, read, &programs));
    }
    plan.kind_of.push_back(kind->second);
  }
  return plan;
}

std::string memory_table(const LayoutConfig& layout, const RunPlan& plan) {
  std::vector<std::vector<std::string>> rows = {{"ranks"}};
  for (int i = 0; i < kNumMemClasses; ++i) {
    rows[0].emplace_back(name_of(static_cast<MemClass>(i)));
  }
  rows[0].emplace_back("total");
  for (const int kind : shown_kinds(plan)) {
    std::vector<std::string> row = {kind_title(layout, plan, kind)};
    const MemoryPlan& memory = plan.kinds[static_cast<std::size_t>(kind)].whole;
    for (const std::int64_t bytes : memory.by_class()) {
      row.push_back(format_bytes(bytes));
    }
    row.push_back(format_bytes(memory.device_bytes()));
    rows.push_back(std::move(row));
  }
  return format_table(rows);
}

}  // namespace orthant
