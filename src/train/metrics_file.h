// metrics.jsonl: one JSON object a step, readable while the run goes on and whole after a crash.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/file.h"

namespace orthant {

// What one step has shown. A number that is not known is NaN and becomes null.
struct StepMetrics {
  std::int64_t step = 0;  // from 1
  double loss = 0;        // mean nats per token over the global batch
  double grad_norm = 0;   // before clipping
  double lr = 0;
  std::int64_t tokens = 0;  // so far
  double step_ms = 0;
  double tokens_per_s = 0;
  double tflops_per_rank = 0;
  double mfu = std::numeric_limits<double>::quiet_NaN();  // 0..1; NaN on an unmeasured machine
  std::int64_t peak_bytes = 0;                            // of the fullest rank
  std::optional<double> valid_loss;                       // in steps that evaluate
};

// A number beyond those that every step has.
struct ExtraMetric {
  std::string name;
  double value = 0;
};

// The line of a step, newline included. JSON has no NaN and no infinity: they become null.
std::string metrics_line(const StepMetrics& metrics, std::span<const ExtraMetric> extra = {});

// Lines that are JSON objects with a `step`.
class MetricsFile {
 public:
  // Opens or creates the file for a run that goes on after `resumed_step` (0: a new run). Lines of
  // later steps, which a lost run wrote, and a line that a crash cut off are taken out.
  MetricsFile(const std::string& path, std::int64_t resumed_step);

  // A line of one step, which is in the file when this returns.
  void write(std::string_view line) { file_.append(line); }

 private:
  File file_;
};

}  // namespace orthant
