// advise(): what is legal and yet seldom meant.
#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "plan/plan.h"
#include "plan/rates.h"
#include "train/run_notes.h"

namespace orthant {
namespace {

void warn_of_wide_tp(const Plan& plan, std::vector<std::string>& advice) {
  const MachineFacts& facts = plan.request.machine.facts;
  const LayoutConfig& layout = plan.config().layout;
  if (facts.devices_per_host == 0 || layout.tp == 1) return;
  const Groups& groups = plan.world.groups;
  const Lane tp = lane_of(groups, 0, "tp");
  const bool crosses = std::any_of(groups.all.begin(), groups.all.end(), [&](const Group& group) {
    return group.lane == tp && most_on_one_host(group, facts.devices_per_host) < layout.tp;
  });
  if (!crosses) return;
  std::int64_t sent = 0;
  for (const Traffic& traffic : plan.traffic) {
    if (traffic.group == "tp") sent = traffic.sent;
  }
  advice.push_back(fmt::format(
      "layout.tp={} {} the {} devices of a host: {} a rank and step over tp, most of it not hidden "
      "behind computing, cross {} at {} GB/s in place of {} at {} GB/s; use a tp that divides {}",
      layout.tp, layout.tp > facts.devices_per_host ? "is larger than" : "does not divide",
      facts.devices_per_host, format_bytes(sent), facts.network, facts.network_gb_s, facts.link,
      facts.link_gb_s, facts.devices_per_host));
}

void warn_of_hosts(const Plan& plan, std::vector<std::string>& advice) {
  const int hosts = plan.request.num_hosts;
  const int per_host = plan.request.machine.facts.devices_per_host;
  const int ranks = plan.config().layout.ranks;
  if (hosts == 0 || per_host == 0 || ranks <= hosts * per_host) return;
  advice.push_back(fmt::format(
      "{} ranks on {} hosts need {} devices a host; a host of '{}' has {}: use {} hosts", ranks,
      hosts, (ranks + hosts - 1) / hosts, plan.request.machine.name, per_host,
      (ranks + per_host - 1) / per_host));
}

// The layouts that cut the model into fewer parts, coarsest first, tp as narrow as it can be.
std::vector<LayoutConfig> coarser_layouts(const LayoutConfig& layout) {
  std::vector<LayoutConfig> all;
  for (int cut = 1; cut < layout.tp * layout.pp; ++cut) {
    for (int pp = 1; pp <= cut; ++pp) {
      const int tp = cut / pp;
      if (cut % pp != 0 || layout.tp % tp != 0 || layout.pp % pp != 0) continue;
      LayoutConfig coarser = layout;
      coarser.tp = tp;
      coarser.pp = pp;
      coarser.zero_stage = std::max(1, layout.zero_stage);
      if (tp == 1) coarser.sequence_parallel = false;
      if (!layout.stages.is_text()) coarser.stages = {"even", {}};
      coarser.schedule = "1f1b";
      coarser.virtual_stages = 1;
      all.push_back(coarser);
    }
  }
  return all;
}

// Parameters, gradients, and sharded masters and moments, of an even cut.
double least_state_bytes(const RunConfig& config) {
  const LayoutConfig& layout = config.layout;
  const double grad = config.precision.grad_accum == "bf16" ? 2 : 4;
  const bool has_master = config.precision.compute != "fp32";
  const double value = has_master ? 2 : 4;
  const double master = !has_master ? 0 : config.precision.master == "split" ? 2 : 4;
  const double moments = config.optimizer.moments == "bf16" ? 4 : 8;
  return static_cast<double>(count_parameters(config.model)) / (layout.tp * layout.pp) *
         (value + grad + (master + moments) / layout.dp());
}

// A layout whose fullest ranks, those of its ends, leave a tenth of the memory free.
std::optional<std::int64_t> bytes_when_fitting(const Job& job, const MemoryLimit& limit) {
  constexpr double kShare = 0.9;
  const double most = kShare * static_cast<double>(limit.devices.front());  // alike on a machine
  if (least_state_bytes(job.config) > most) return std::nullopt;
  const RankConfig rank = rank_config(job);
  std::int64_t fullest = 0;
  for (const int r : {0, rank.layout.ranks - 1}) {
    fullest = std::max(fullest, dry_run_memory(rank, r, eval_micros(job), {}).whole.device_bytes() +
                                    library_bytes(limit.libraries, rank, r));
    if (static_cast<double>(fullest) > most) return std::nullopt;
  }
  return fullest;
}

// A layout that leaves more than half of every device free is cut too fine.
void name_coarser_layout(const Plan& plan, std::vector<std::string>& advice) {
  const LayoutConfig& layout = plan.config().layout;
  if (plan.limit.devices.empty() || 2 * plan.fit.needed > plan.fit.available) return;
  for (const LayoutConfig& coarser : coarser_layouts(layout)) {
    Job job = plan.request.job;
    job.config.layout = coarser;
    try {
      validate(job.config);
    } catch (const Error& error) {
      if (error.fault() != Fault::kUser) throw;
      continue;
    }
    const std::optional<std::int64_t> bytes = bytes_when_fitting(job, plan.limit);
    if (!bytes) continue;
    const double billions = static_cast<double>(count_parameters(job.config.model)) * 1e-9;
    advice.push_back(fmt::format(
        "this layout is over-sharded: {:.2f} B parameters a rank; tp {}, pp {}, dp {} with ZeRO-{} "
        "fits too, with {} of {} on its fullest rank and fewer messages; try it first: "
        "--layout.tp={} --layout.pp={} --layout.zero_stage={}",
        billions / (layout.tp * layout.pp), coarser.tp, coarser.pp, coarser.dp(),
        coarser.zero_stage, format_bytes(*bytes), format_bytes(plan.limit.devices.front()),
        coarser.tp, coarser.pp, coarser.zero_stage));
    return;
  }
}

// Calls of tp that have no work beside them, where halves of micro-batches would bring some.
void name_halves(const Plan& plan, std::vector<std::string>& advice) {
  constexpr double kMuch = 0.05;  // of a step
  const LayoutConfig& layout = plan.config().layout;
  if (!plan.time || layout.takes_turns()) return;
  const auto waits = plan.time->waits.find("tp");
  if (waits == plan.time->waits.end() || waits->second < kMuch * plan.time->step_s) return;
  RunConfig halves = plan.config();
  halves.layout.tp_overlap = "halves";
  try {
    validate(halves);
  } catch (const Error& error) {
    if (error.fault() != Fault::kUser) throw;
    return;
  }
  advice.push_back(fmt::format(
      "a rank waits {:.1f} ms of a step's {:.1f} ms for calls of tp; halves of a micro-batch that "
      "take turns have work beside them: plan --layout.tp_overlap=halves",
      waits->second * 1e3, plan.time->step_s * 1e3));
}

// Attention that leaves cuDNN for the sake of dropout's masks.
void warn_of_exact_dropout(const Plan& plan, std::vector<std::string>& advice) {
  const Machine& machine = plan.request.machine;
  const std::vector<double>& all = machine.attention.backward_dropout;
  const RunConfig& config = plan.config();
  const bool leaves_cudnn = config.compute_type() != DType::kF32 && work_of(config).attends_exactly;
  if (!leaves_cudnn || all.empty() || machine.measured.attention_tflops_fp32 <= 0) return;
  advice.push_back(fmt::format(
      "train.deterministic with model.dropout={:g} has the CPU's masks in attention, by a kernel "
      "of {:.1f} TFLOP/s in place of up to {:.0f}; train.deterministic=false has cuDNN's, which "
      "depend on tp and layout.micro_batch, and model.dropout=0 none",
      config.model.dropout, machine.measured.attention_tflops_fp32,
      *std::max_element(all.begin(), all.end())));
}

}  // namespace

std::vector<std::string> advise(const Plan& plan) {
  std::vector<std::string> advice = notes_on(plan.config());
  warn_of_hosts(plan, advice);
  warn_of_wide_tp(plan, advice);
  warn_of_exact_dropout(plan, advice);
  name_halves(plan, advice);
  name_coarser_layout(plan, advice);
  return advice;
}

}  // namespace orthant
