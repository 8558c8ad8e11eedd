// plan_text(): a plan for people.
#include <algorithm>

#include "base/text.h"
#include "plan/plan.h"

namespace orthant {
namespace {

using Rows = std::vector<std::vector<std::string>>;

std::string header(const Plan& plan) {
  const RunConfig& config = plan.config();
  const LayoutConfig& layout = config.layout;
  const auto parameters = static_cast<double>(count_parameters(config.model));
  const RankConfig rank = rank_config(plan.request.job);
  return fmt::format(
      "{:.2f} B parameters ({} in bf16), {} ranks: tp {}, pp {}, dp {}, {:.2f} B parameters a "
      "rank\n"
      "{} micro-batches of {} x {} tokens a step and dp rank, schedule {}, ZeRO-{}; machine {}: "
      "{}\n",
      parameters * 1e-9, format_bytes(static_cast<std::int64_t>(parameters) * 2), layout.ranks,
      layout.tp, layout.pp, layout.dp(), parameters * 1e-9 / (layout.tp * layout.pp),
      rank.max_micros, layout.micro_batch, config.train.seq_length, layout.schedule,
      layout.zero_stage, plan.request.machine.name, plan.request.machine.facts.title);
}

std::int64_t sum_of(const ClassBytes& classes) {
  std::int64_t sum = 0;
  for (const std::int64_t bytes : classes) {
    sum += bytes;
  }
  return sum;
}

// The phases of the fullest kind.
std::string phases_text(const Plan& plan) {
  const auto fullest = std::max_element(plan.memory.kinds.begin(), plan.memory.kinds.end(),
                                        [](const DryMemory& a, const DryMemory& b) {
                                          return a.whole.device_bytes() < b.whole.device_bytes();
                                        });
  std::vector<std::string> parts;
  for (int i = 0; i < kNumPhases; ++i) {
    const std::int64_t bytes = sum_of(fullest->phases[static_cast<std::size_t>(i)]);
    if (bytes > 0) {
      parts.push_back(fmt::format("{} {}", name_of(static_cast<Phase>(i)), format_bytes(bytes)));
    }
  }
  std::string text = "the fullest rank by phase: " + join(parts);
  const Job& job = plan.request.job;
  text +=
      fmt::format("; host memory beside it: {} a rank", format_bytes(host_bytes(job, *fullest)));
  const std::int64_t links = fullest->link_bytes(job.transport);
  if (links > 0)
    text += fmt::format(", {} of it for links to other processes", format_bytes(links));
  return text + "\n";
}

// Of the rank for which they take most.
std::string libraries_text(const Plan& plan) {
  const RankConfig config = rank_config(plan.request.job);
  const Libraries& libraries = plan.limit.libraries;
  int most = 0;
  for (int rank = 1; rank < config.layout.ranks; ++rank) {
    if (library_bytes(libraries, config, rank) > library_bytes(libraries, config, most)) {
      most = rank;
    }
  }
  const std::int64_t bytes = library_bytes(libraries, config, most);
  if (bytes == 0) return "";
  return fmt::format("libraries take {} of a device for rank {}: {}\n", format_bytes(bytes), most,
                     library_text(libraries, config, most));
}

std::string fit_text(const Plan& plan) {
  const Fit& fit = plan.fit;
  return fmt::format("{}: {} of {} free: {}\n", fit.where, format_bytes(fit.needed),
                     format_bytes(fit.available), fit.fits ? "fits" : "does not fit");
}

std::string traffic_text(const Plan& plan) {
  if (plan.traffic.empty()) return "";
  Rows rows = {{"group", "ranks", "calls", "bytes", "sent"}};
  for (const Traffic& traffic : plan.traffic) {
    rows.push_back({traffic.group, fmt::format("{}", traffic.group_size),
                    fmt::format("{}", traffic.calls), format_bytes(traffic.bytes),
                    format_bytes(traffic.sent)});
  }
  return "calls of the busiest rank of each group in a step; sent: by a ring\n" +
         format_table(rows);
}

std::string zero_text(const Plan& plan) {
  if (plan.zero.empty()) return "";
  Rows rows = {{"ZeRO", "parameters", "gradients", "optimizer", "staging", "rank 0",
                "calls over dp", "sent over dp"}};
  std::vector<std::string> refused;
  for (const ZeroCost& cost : plan.zero) {
    if (!cost.refused.empty()) {
      refused.push_back(fmt::format("ZeRO-{} here: {}\n", cost.stage, cost.refused));
      continue;
    }
    const auto bytes = [&cost](MemClass what) {
      return format_bytes(cost.classes[static_cast<std::size_t>(what)]);
    };
    rows.push_back({fmt::format("{}", cost.stage), bytes(MemClass::kParameters),
                    bytes(MemClass::kGradients), bytes(MemClass::kOptimizer),
                    bytes(MemClass::kStaging), format_bytes(cost.device_bytes),
                    fmt::format("{}", cost.calls), format_bytes(cost.sent)});
  }
  return "what each stage of ZeRO takes and sends on rank 0, in a step\n" + format_table(rows) +
         join(refused, "");
}

std::string match_text(const Plan& plan) {
  const MatchResult& match = plan.match;
  if (!match.mismatches.empty()) {
    std::string text = "the calls of the ranks do not match:\n";
    for (const Mismatch& mismatch : match.mismatches) {
      text += "  " + mismatch.what + "\n";
    }
    return text;
  }
  if (!match.deadlock.empty()) return "ranks wait for ever: " + match.deadlock + "\n";
  std::string text = fmt::format(
      "calls of all {} ranks match, no rank can wait for ever{}\n", plan.config().layout.ranks,
      match.in_order_deadlock.empty() ? ", also where a communicator runs its calls in order" : "");
  text += fmt::format("idle share of a step {:.1f} % (stage times by FLOPs, messages free)\n",
                      plan.bubble * 100);
  return text;
}

std::string time_text(const Plan& plan) {
  if (!plan.time) {
    return fmt::format("step time: not predicted, machine {} has no {} under [measured]\n",
                       plan.request.machine.name, plan.missing_rate);
  }
  const StepTime& time = *plan.time;
  std::vector<std::string> waits;
  for (const auto& [group, seconds] : time.waits) {
    waits.push_back(fmt::format("{} {:.1f} ms", group, seconds * 1e3));
  }
  return fmt::format(
      "predicted step {:.1f} ms, {:.0f} tokens/s, {:.1f} % of peak; a rank computes at most {:.1f} "
      "ms "
      "and waits on average{} {}\n",
      time.step_s * 1e3, time.tokens_per_s, time.mfu * 100, time.compute_s * 1e3,
      waits.empty() ? "" : " for", waits.empty() ? "for nothing" : join(waits));
}

}  // namespace

std::string plan_text(const Plan& plan) {
  std::string text = header(plan) + memory_table(plan.config().layout, plan.memory) +
                     phases_text(plan) + libraries_text(plan) + fit_text(plan) +
                     traffic_text(plan) + zero_text(plan) + match_text(plan) + time_text(plan);
  for (const std::string& advice : plan.advice) {
    text += "note: " + advice + "\n";
  }
  return text;
}

}  // namespace orthant
