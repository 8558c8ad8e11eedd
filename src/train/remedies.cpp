// find_remedies(): changes of the run file, each tried by a dry run.
#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <optional>
#include <string_view>
#include <thread>

#include "base/check.h"
#include "base/text.h"
#include "train/fit.h"

namespace orthant {
namespace {

// A change, in the order of what it costs as a rule. `apply` says the options that it sets; none
// when the run has it already.
struct Change {
  std::function<std::vector<std::string>(RunConfig&)> apply;
  const char* remark;
  bool goes_further =
      false;  // than the change before it: tried in its place where that is not enough
};

Change set_text(std::string LayoutConfig::*field, const char* option, const char* value,
                const char* remark) {
  return {[=](RunConfig& config) -> std::vector<std::string> {
            if (config.layout.*field != "none") return {};
            config.layout.*field = value;
            return {fmt::format("{}={}", option, value)};
          },
          remark};
}

Change zero(int stage, const char* remark) {
  return {[=](RunConfig& config) -> std::vector<std::string> {
            if (config.layout.zero_stage >= stage || config.layout.dp() == 1) return {};
            config.layout.zero_stage = stage;
            return {fmt::format("layout.zero_stage={}", stage)};
          },
          remark};
}

// Of the optimizer's state, so much; more leaves more of the device free and takes longer.
Change offload_state(double fraction, bool goes_further) {
  return {
      [=](RunConfig& config) -> std::vector<std::string> {
        const bool offloads = config.layout.offload != "none";
        const bool has_as_much = config.layout.offload_fraction >= fraction;
        if (offloads && (config.layout.offload == "stash" || has_as_much)) return {};
        config.layout.offload = "optimizer";
        config.layout.offload_fraction = fraction;
        return {"layout.offload=optimizer", fmt::format("layout.offload_fraction={}", fraction)};
      },
      "updates run on the host, behind the next forward", goes_further};
}

Change twice(int LayoutConfig::*field, const char* option, const char* remark) {
  return {[=](RunConfig& config) -> std::vector<std::string> {
            config.layout.*field *= 2;
            return {fmt::format("{}={}", option, config.layout.*field)};
          },
          remark};
}

std::vector<std::string> split_sequence(RunConfig& config) {
  if (config.layout.sequence_parallel || config.layout.tp == 1) return {};
  config.layout.sequence_parallel = true;
  return {"layout.sequence_parallel=true"};
}

std::vector<std::string> halve_micro_batch(RunConfig& config) {
  if (config.layout.micro_batch % 2 != 0) return {};
  LayoutConfig& layout = config.layout;
  layout.micro_batch /= 2;
  std::vector<std::string> options = {fmt::format("layout.micro_batch={}", layout.micro_batch)};
  if (layout.takes_turns() && layout.micro_batch % 2 != 0) {
    layout.tp_overlap = "rows";
    options.emplace_back("layout.tp_overlap=rows");
  }
  return options;
}

std::vector<std::string> compute_in_bf16(RunConfig& config) {
  if (config.precision.compute != "fp32") return {};
  config.precision.compute = "bf16";
  return {"precision.compute=bf16"};
}

std::vector<std::string> keep_moments_in_bf16(RunConfig& config) {
  if (config.optimizer.moments != "fp32") return {};
  config.optimizer.moments = "bf16";
  return {"optimizer.moments=bf16"};
}

std::vector<std::string> split_masters(RunConfig& config) {
  if (config.precision.compute != "bf16" || config.precision.master != "fp32") return {};
  config.precision.master = "split";
  return {"precision.master=split"};
}

std::vector<std::string> alternate(RunConfig& config) {
  if (config.layout.schedule != "gpipe") return {};
  config.layout.schedule = "1f1b";
  return {"layout.schedule=1f1b"};
}

std::vector<Change> changes() {
  return {
      {alternate, ""},
      {split_sequence, ""},
      set_text(&LayoutConfig::recompute, "layout.recompute", "cheap", ""),
      set_text(&LayoutConfig::recompute, "layout.recompute", "attention", ""),
      {halve_micro_batch, "products of half the rows"},
      zero(1, ""),
      zero(2, "gradients add over dp in every micro-batch"),
      zero(3, "weights are gathered for every use"),
      twice(&LayoutConfig::tp, "layout.tp", "half the dp ranks, products of half the width"),
      twice(&LayoutConfig::pp, "layout.pp", "half the dp ranks, a longer pipeline"),
      set_text(&LayoutConfig::recompute, "layout.recompute", "block", ""),
      {split_masters, "masters halfway between two weights lose one unit in the last place"},
      {keep_moments_in_bf16, "moments are rounded"},
      {compute_in_bf16, "bf16 activations and weights, fp32 masters"},
      offload_state(0.25, false),
      offload_state(0.5, true),
      offload_state(0.75, true),
      offload_state(1, true),
      set_text(&LayoutConfig::offload, "layout.offload", "stash",
               "copies both ways in every block"),
  };
}

// What a step of the busiest rank does.
struct StepTotals {
  double flops = 0;
  double message_bytes = 0;
  double copied_bytes = 0;

  void raise(std::span<const Entry> step) {
    StepTotals own;
    for (const Entry& entry : step) {
      own.flops += entry.cost.flops;
      own.message_bytes += static_cast<double>(entry.message_bytes);
      const bool is_copy = entry.lane == Lane::kCopyIn || entry.lane == Lane::kCopyOut;
      if (is_copy) own.copied_bytes += entry.cost.bytes;
    }
    flops = std::max(flops, own.flops);
    message_bytes = std::max(message_bytes, own.message_bytes);
    copied_bytes = std::max(copied_bytes, own.copied_bytes);
  }
};

struct Trial {
  RunPlan plan;
  StepTotals totals;
};

Trial plan_of(const Job& job) {
  Trial trial;
  trial.plan = plan_run(rank_config(job), eval_micros(job),
                        [&trial](std::span<const Entry> step) { trial.totals.raise(step); });
  return trial;
}

// False: the options do not go together here.
bool is_legal(RunConfig& config) {
  try {
    validate(config);
    return true;
  } catch (const Error& error) {
    if (error.fault() != Fault::kUser) throw;
    return false;
  }
}

class Search {
 public:
  Search(const Job& job, const RunPlan& plan, const MemoryLimit& limit)
      : job_(job),
        limit_(limit),
        needed_(check_fit(job, plan, limit).needed),
        base_(plan_of(job).totals) {}

  std::vector<Remedy> run() {
    const std::vector<Change> each = changes();
    std::vector<std::optional<Remedy>> tried = try_each(each);
    std::vector<Remedy> all;
    bool fits = false;  // the change before, ...
    bool is_kept = false;
    for (std::size_t i = 0; i < each.size(); ++i) {
      if (!each[i].goes_further) fits = is_kept = false;
      if (fits || !tried[i]) continue;
      if (is_kept) all.pop_back();  // ... in whose place this one comes
      is_kept = true;
      fits = tried[i]->fits;
      all.push_back(std::move(*tried[i]));
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const Remedy& a, const Remedy& b) { return a.fits > b.fits; });
    if (!all.empty() && !all.front().fits) add_together(all);
    return all;
  }

 private:
  // By itself, side by side on the cores of this host; nothing where one does not help.
  std::vector<std::optional<Remedy>> try_each(const std::vector<Change>& each) const {
    std::vector<std::optional<Remedy>> tried(each.size());
    std::vector<std::exception_ptr> faults(each.size());
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
      for (std::size_t i = next++; i < each.size(); i = next++) {
        try {
          Job changed = job_;
          Remedy remedy{.options = each[i].apply(changed.config), .cost = {}};
          if (try_out(changed, each[i].remark, remedy)) tried[i] = std::move(remedy);
        } catch (...) {
          faults[i] = std::current_exception();
        }
      }
    };
    {
      const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
      std::vector<std::jthread> threads;
      while (threads.size() < std::min(cores, each.size())) {
        threads.emplace_back(work);
      }
    }
    for (const std::exception_ptr& fault : faults) {
      if (fault != nullptr) std::rethrow_exception(fault);
    }
    return tried;
  }

  bool try_out(Job& changed, const char* remark, Remedy& remedy) const {
    if (remedy.options.empty() || !is_legal(changed.config)) return false;
    const Trial trial = plan_of(changed);
    const Fit fit = check_fit(changed, trial.plan, limit_);
    remedy.saved = needed_ - fit.needed;
    remedy.fits = fit.fits;
    remedy.cost = cost_of(trial.totals, remark);
    return remedy.saved > 0;
  }

  // One after another, each kept when it saves more, again and again until it fits.
  void add_together(std::vector<Remedy>& all) const {
    Job together = job_;
    Remedy best{.options = {}, .cost = {}};
    for (bool is_better = true; is_better && !best.fits;) {
      is_better = false;
      for (const Change& change : changes()) {
        if (best.fits) break;
        Job changed = together;
        const std::vector<std::string> added = change.apply(changed.config);
        Remedy more{.options = merged(best.options, added), .cost = {}};
        if (added.empty() || !try_out(changed, "", more) || more.saved <= best.saved) continue;
        best = std::move(more);
        together = std::move(changed);
        is_better = true;
      }
    }
    if (best.fits) all.insert(all.begin(), std::move(best));
  }

  // An option that is set again has its last value.
  static std::vector<std::string> merged(std::vector<std::string> options,
                                         const std::vector<std::string>& added) {
    for (const std::string& option : added) {
      const std::string key = option.substr(0, option.find('=') + 1);
      std::erase_if(options, [&key](const std::string& o) { return o.starts_with(key); });
      options.push_back(option);
    }
    return options;
  }

  std::string cost_of(const StepTotals& totals, const char* remark) const {
    std::vector<std::string> parts;
    const auto compare = [&parts](double before, double now, const char* what) {
      const double share = before > 0 ? now / before - 1 : 0;
      if (share > 5e-4 || share < -5e-4)
        parts.push_back(fmt::format("{:+.1f} % {}", share * 100, what));
    };
    compare(base_.flops, totals.flops, "FLOPs");
    compare(base_.message_bytes, totals.message_bytes, "bytes of messages");
    if (totals.copied_bytes > base_.copied_bytes) {
      parts.push_back(fmt::format(
          "{} copied a step",
          format_bytes(static_cast<std::int64_t>(totals.copied_bytes - base_.copied_bytes))));
    }
    if (*remark != '\0') parts.emplace_back(remark);
    return parts.empty() ? "costs nothing else" : join(parts);
  }

  const Job& job_;
  const MemoryLimit& limit_;
  std::int64_t needed_;
  StepTotals base_;
};

}  // namespace

std::vector<Remedy> find_remedies(const Job& job, const RunPlan& plan, const MemoryLimit& limit) {
  return Search(job, plan, limit).run();
}

}  // namespace orthant
