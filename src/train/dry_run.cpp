#include "train/dry_run.h"

#include <algorithm>

#include "base/check.h"
#include "comm/backends.h"

namespace orthant {
namespace {

// Points every entry's `where` at names that outlive the rank.
void keep_names(DryRun& run, std::span<const Entry> entries) {
  run.step.assign(entries.begin(), entries.end());
  for (const Entry& entry : entries) {
    if (std::find(run.names.begin(), run.names.end(), entry.where) == run.names.end()) {
      run.names.emplace_back(entry.where);
    }
  }
  for (Entry& entry : run.step) {
    entry.where = *std::find(run.names.begin(), run.names.end(), entry.where);
  }
}

DryRun run_dry(const RankConfig& config, int rank, int eval_micros, Programs* programs) {
  const std::unique_ptr<Device> device = make_meta_device();
  const Backend backend{
      .device = *device,
      .ops = "meta",
      .join_world =
          [&](const CommParts& parts) { return make_meta_world(rank, config.layout.ranks, parts); },
      .num_threads = 1,
      .programs = programs};
  Rank meta(config, backend, std::nullopt);
  DryRun run;
  if (config.purpose == Purpose::kTrain) {
    for (const int micros : config.other_micros) {
      meta.step(1, 0.0, {}, micros);
    }
    meta.step(1, 0.0, {}, config.max_micros);
    // What is offloaded is updated behind the forward of the next step: that one is like all
    // others.
    if (config.layout.offload == "optimizer") meta.step(2, 0.0, {}, config.max_micros);
    keep_names(run, meta.ledger().entries());
  }
  if (eval_micros > 0) meta.evaluate({}, eval_micros);
  run.memory = meta.memory();
  return run;
}

}  // namespace

DryRun dry_run(const RankConfig& config, int rank, int eval_micros, Programs* programs) {
  try {
    return run_dry(config, rank, eval_micros, programs);
  } catch (const Error& error) {
    if (error.fault() != Fault::kPlan) throw;
    throw Error(Fault::kPlan,
                fmt::format("rank {} needs more memory than can be planned for; lower "
                            "layout.micro_batch={} or train.seq_length={}",
                            rank, config.layout.micro_batch, config.seq_length));
  }
}

}  // namespace orthant
