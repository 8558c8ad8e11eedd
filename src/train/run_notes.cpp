#include "train/run_notes.h"

#include <fmt/format.h>

#include "train/algorithm_file.h"

namespace orthant {

std::vector<std::string> notes_on(const RunConfig& config) {
  const LayoutConfig& layout = config.layout;
  const OptimizerConfig& optimizer = config.optimizer;
  std::vector<std::string> notes;
  if (layout.zero_gather == "step" && layout.zero_stage != 3) {
    notes.push_back(
        fmt::format("layout.zero_gather=step changes nothing with layout.zero_stage={}: only "
                    "ZeRO-3 gathers weights",
                    layout.zero_stage));
  }
  if (layout.offload_fraction != 1 && layout.offload == "none") {
    notes.push_back(
        fmt::format("layout.offload_fraction={} changes nothing with layout.offload=none: give "
                    "stash or optimizer",
                    layout.offload_fraction));
  }
  if (layout.sequence_parallel && layout.tp == 1) {
    notes.emplace_back(
        "layout.sequence_parallel=true changes nothing with layout.tp=1: rows are split over tp");
  }
  if (layout.tp_overlap == "halves" && layout.tp == 1) {
    notes.emplace_back(
        "layout.tp_overlap=halves changes nothing with layout.tp=1: there is no call of tp to run "
        "work beside");
  }
  if (optimizer.decay_steps > 0 && optimizer.decay != "wsd") {
    notes.push_back(
        fmt::format("optimizer.decay_steps={} changes nothing with optimizer.decay={}: it is of "
                    "wsd",
                    optimizer.decay_steps, optimizer.decay));
  }
  if (!config.device.algorithms.empty() && named_algorithms(config).empty()) {
    const bool is_cuda = config.device.kind == "cuda";
    notes.push_back(fmt::format(
        "device.algorithms={} changes nothing with {}: {}", config.device.algorithms,
        is_cuda ? "train.deterministic=true" : "device.kind=" + config.device.kind,
        is_cuda ? "the library's first algorithm is taken" : "only a GPU's products are timed"));
  }
  return notes;
}

}  // namespace orthant
