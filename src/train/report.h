// What a run tells: the progress line, metrics.jsonl, checkpoints.jsonl, TensorBoard events,
// run.toml. Rank 0's.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "train/event_file.h"
#include "train/metrics_file.h"
#include "train/progress.h"
#include "train/rank.h"
#include "train/run_config.h"
#include "train/saver.h"
#include "train/valid_loss.h"

namespace orthant {

class Report {
 public:
  // Opens the files in config.log.dir, which is there; lines of steps from first_step on, which a
  // lost run wrote, go.
  // `peak_bytes`: of the fullest rank; `peak_flops`: FLOP/s of this machine, for mfu.
  Report(const RunConfig& config, std::int64_t peak_bytes, std::int64_t first_step,
         double peak_flops);

  // `seconds`: of the step alone, without evaluation and checkpoint. `drawn`: of a blend, the
  // samples of each prefix of data.train so far; else empty.
  void step(std::int64_t step, const StepResult& result, const std::optional<EvalResult>& valid,
            double seconds, std::span<const std::int64_t> drawn);
  void checkpoint(const SaveOutcome& saved);
  void message(std::string_view text);  // every line of it a line of its own
  void finish() { progress_.finish(); }

 private:
  void write_events(const StepMetrics& metrics, const std::optional<EvalResult>& valid);

  const RunConfig& config_;
  std::int64_t peak_bytes_;
  double peak_flops_;
  MetricsFile metrics_;
  MetricsFile checkpoints_;
  EventFile events_;
  Progress progress_;
};

}  // namespace orthant
