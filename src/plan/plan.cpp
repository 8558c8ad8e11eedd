#include "plan/plan.h"

#include <algorithm>

#include "base/check.h"
#include "plan/rates.h"
#include "train/host_memory.h"

namespace orthant {
namespace {

// Idle share of all ranks' time.
double idle_share(const Classes& classes, const Timeline& timeline) {
  double busy = 0;
  for (const int own : classes.class_of) {
    busy += timeline.classes[static_cast<std::size_t>(own)].compute;
  }
  const double all = timeline.makespan * static_cast<double>(classes.class_of.size());
  return all > 0 ? 1 - busy / all : 0;
}

StepTime step_time(const Plan& plan) {
  const RunConfig& config = plan.config();
  const Machine& machine = plan.request.machine;
  const Timeline timeline =
      run_timeline(plan.world, plan.classes, LaneOrder::kByPair,
                   durations_on(machine, work_of(config), plan.world.tables), {});
  StepTime time{.step_s = timeline.makespan, .waits = {}};
  const auto num_ranks = static_cast<double>(plan.classes.class_of.size());
  for (const int own : plan.classes.class_of) {
    const Timeline::Times& times = timeline.classes[static_cast<std::size_t>(own)];
    time.compute_s = std::max(time.compute_s, times.compute);
    for (const auto& [group, seconds] : times.waits) {
      time.waits[group] += seconds / num_ranks;
    }
  }
  const auto samples = static_cast<double>(config.max_global_batch());
  const double flops = sequence_flops(config.model, config.train.seq_length) * samples;
  time.tokens_per_s = samples * static_cast<double>(config.train.seq_length) / timeline.makespan;
  const double peak = machine.peak_flops(config.compute_type());
  time.mfu = peak > 0 ? flops / timeline.makespan / num_ranks / peak : 0;
  return time;
}

ZeroCost zero_cost(const Plan& plan, int stage) {
  Job job = plan.request.job;
  job.config.layout.zero_stage = stage;
  ZeroCost cost{.stage = stage, .refused = {}};
  try {
    validate(job.config);
  } catch (const Error& error) {
    if (error.fault() != Fault::kUser) throw;
    cost.refused = error.what();
    return cost;
  }
  ProgramTables tables;
  const Lane dp = lane_of(plan.world.groups, 0, "dp");
  const auto count = [&](std::span<const Entry> step) {
    for (const Instruction& call : make_program(step, tables).list) {
      if (!is_call(call) || call.lane != dp) continue;
      ++cost.calls;
      cost.sent += sent_bytes(call);
    }
  };
  const MemoryPlan memory = dry_run_memory(rank_config(job), 0, eval_micros(job), count).whole;
  cost.classes = memory.by_class();
  cost.device_bytes = memory.device_bytes();
  return cost;
}

}  // namespace

MemoryLimit limit_of(const Machine& machine, const Job& job) {
  if (machine.shares_host()) return limit_of_this_host(job.config.layout);
  const MachineFacts& facts = machine.facts;
  const int ranks = job.config.layout.ranks;
  const bool is_by_memory = job.transport == Transport::kThreads ||
                            job.transport == Transport::kSharedMemory;  // in a run: of processes
  const GpuLinks links = ranks == 1                                        ? GpuLinks::kNone
                         : is_by_memory && ranks <= facts.devices_per_host ? GpuLinks::kPeers
                                                                           : GpuLinks::kNccl;
  return {.devices = std::vector<std::int64_t>(static_cast<std::size_t>(facts.devices_per_host),
                                               facts.memory_mib << 20),
          .host_bytes = facts.host_memory_gib << 30,
          .ranks_per_host = facts.devices_per_host,
          .libraries = {
              .memory = facts.libraries, .links = links, .ranks_per_host = facts.devices_per_host}};
}

Plan make_plan(const PlanRequest& request) {
  const Job& job = request.job;
  Plan plan;
  plan.request = request;
  plan.limit = limit_of(request.machine, job);
  DryWorld dry = dry_world(rank_config(job), eval_micros(job));
  plan.memory = std::move(dry.memory);
  plan.world = std::move(dry.world);
  plan.fit = check_fit(job, plan.memory, plan.limit);
  plan.classes = find_classes(plan.world.groups, plan.world.kinds, plan.world.kind_of);
  plan.match = match(plan.world, plan.classes);
  plan.traffic = busiest_traffic(plan.world);
  if (plan.match.is_whole()) {
    const Timeline timeline = run_timeline(plan.world, plan.classes, LaneOrder::kByPair,
                                           flop_durations(plan.world.tables), {});
    plan.bubble = idle_share(plan.classes, timeline);
    plan.missing_rate = missing_rate(request.machine, plan.world);
    if (plan.missing_rate.empty()) plan.time = step_time(plan);
  }
  for (int stage = 0; stage <= 3 && job.config.layout.dp() > 1; ++stage) {
    plan.zero.push_back(zero_cost(plan, stage));
  }
  plan.advice = advise(plan);
  return plan;
}

}  // namespace orthant
