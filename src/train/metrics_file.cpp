// Keys stand in a fixed order, so that the file can be read by eye.
#include "train/metrics_file.h"

#include <cmath>
#include <filesystem>

#include <fmt/format.h>

#include "base/check.h"
#include "base/json.h"

namespace orthant {
namespace {

void add_number(std::string& line, std::string_view name, double value) {
  const std::string key = Json(name).dump(-1, ' ', false, Json::error_handler_t::replace);
  if (std::isfinite(value)) {
    fmt::format_to(std::back_inserter(line), ",{}:{}", key, value);
  } else {
    fmt::format_to(std::back_inserter(line), ",{}:null", key);
  }
}

// The step of a line, or nothing if the line is no step's.
std::optional<std::int64_t> step_of(std::string_view line) {
  const Json parsed = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return std::nullopt;
  const auto step = parsed.find("step");
  if (step == parsed.end() || !step->is_number_integer()) return std::nullopt;
  return step->get<std::int64_t>();
}

// The lines of steps up to `last_step`.
std::string kept_lines(std::string_view text, std::int64_t last_step) {
  std::string kept;
  while (!text.empty()) {
    const std::size_t newline = text.find('\n');
    if (newline == text.npos) break;  // cut off by a crash
    const std::string_view line = text.substr(0, newline + 1);
    const std::optional<std::int64_t> step = step_of(line);
    if (step.has_value() && *step <= last_step) kept += line;
    text.remove_prefix(newline + 1);
  }
  return kept;
}

File open_for_appending(const std::string& path, std::int64_t resumed_step) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (!std::filesystem::exists(path, error)) return File(path, File::Mode::kCreate);
  const std::string text = read_text_file(path);
  const std::string kept = kept_lines(text, resumed_step);
  if (kept != text) write_file_atomically(path, kept);
  return File(path, File::Mode::kWrite);
}

}  // namespace

std::string metrics_line(const StepMetrics& metrics, std::span<const ExtraMetric> extra) {
  std::string line = fmt::format("{{\"step\":{}", metrics.step);
  add_number(line, "loss", metrics.loss);
  add_number(line, "grad_norm", metrics.grad_norm);
  add_number(line, "lr", metrics.lr);
  fmt::format_to(std::back_inserter(line), ",\"tokens\":{}", metrics.tokens);
  add_number(line, "step_ms", metrics.step_ms);
  add_number(line, "tokens_per_s", metrics.tokens_per_s);
  add_number(line, "tflops_per_rank", metrics.tflops_per_rank);
  add_number(line, "mfu", metrics.mfu);
  fmt::format_to(std::back_inserter(line), ",\"peak_bytes\":{}", metrics.peak_bytes);
  if (metrics.valid_loss.has_value()) add_number(line, "valid_loss", *metrics.valid_loss);
  for (const ExtraMetric& metric : extra) {
    add_number(line, metric.name, metric.value);
  }
  line += "}\n";
  return line;
}

MetricsFile::MetricsFile(const std::string& path, std::int64_t resumed_step)
    : file_(open_for_appending(path, resumed_step)) {}

}  // namespace orthant
