#include "train/report.h"

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"

namespace orthant {
namespace {

double wall_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The whole's perplexity, and of each source, where there are several, both.
void add_evaluation(const EvalResult& valid, std::vector<ExtraMetric>& extra) {
  extra.push_back({"valid_perplexity", perplexity(valid.loss)});
  if (valid.sources.size() < 2) return;
  for (const SourceLoss& source : valid.sources) {
    extra.push_back({"valid_loss/" + source.prefix, source.loss});
    extra.push_back({"valid_perplexity/" + source.prefix, perplexity(source.loss)});
  }
}

double rate_of(const SaveOutcome& saved) {
  return static_cast<double>(saved.bytes) / saved.seconds;
}

std::string checkpoint_line(const SaveOutcome& saved) {
  OrderedJson line = {{"step", saved.step}};
  if (saved.failure.empty()) {
    line["bytes"] = saved.bytes;
    line["seconds"] = saved.seconds;
    line["bytes_per_s"] = rate_of(saved);
    line["waited_s"] = saved.waited_s;
  } else {
    line["failure"] = saved.failure;
  }
  return line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

// The folder, with the run's complete options in it.
const std::string& prepared(const RunConfig& config) {
  write_file_atomically(config.log.dir + "/run.toml", to_toml(config));
  return config.log.dir;
}

}  // namespace

Report::Report(const RunConfig& config, std::int64_t peak_bytes, std::int64_t first_step,
               double peak_flops)
    : config_(config),
      peak_bytes_(peak_bytes),
      peak_flops_(peak_flops),
      metrics_(prepared(config) + "/metrics.jsonl", first_step - 1),
      checkpoints_(config.log.dir + "/checkpoints.jsonl", first_step - 1),
      events_(config.log.dir, wall_s(), first_step - 1),
      progress_(progress_output(stderr), first_step, config.train.steps) {}

void Report::message(std::string_view text) {
  while (text.ends_with('\n')) {
    text.remove_suffix(1);
  }
  for (const std::string& line : split(text, '\n')) {
    progress_.message(line);
  }
}

void Report::checkpoint(const SaveOutcome& saved) {
  checkpoints_.write(checkpoint_line(saved));
  if (!saved.failure.empty()) {
    message(fmt::format("step {}: no checkpoint, training goes on: {}", saved.step, saved.failure));
    return;
  }
  message(
      fmt::format("step {}: checkpoint saved in {}: {} in {:.2f} s, {}/s; training waited {:.3f} s",
                  saved.step, config_.checkpoint.dir, format_bytes(saved.bytes), saved.seconds,
                  format_bytes(static_cast<std::int64_t>(rate_of(saved))), saved.waited_s));
}

void Report::step(std::int64_t step, const StepResult& result,
                  const std::optional<EvalResult>& valid, double seconds,
                  std::span<const std::int64_t> drawn) {
  const std::int64_t samples = config_.global_batch_at(step);
  const double flops =
      sequence_flops(config_.model, config_.train.seq_length) * static_cast<double>(samples);
  StepMetrics metrics;
  metrics.step = step;
  metrics.loss = result.loss;
  metrics.grad_norm = result.grad_norm;
  metrics.lr = lr_at(config_.lr(), step);
  metrics.tokens = config_.samples_before(step + 1) * config_.train.seq_length;
  metrics.step_ms = seconds * 1e3;
  metrics.tokens_per_s = static_cast<double>(samples * config_.train.seq_length) / seconds;
  metrics.tflops_per_rank = flops / seconds / config_.layout.ranks / 1e12;
  metrics.mfu = flops / seconds / peak_flops_;
  metrics.peak_bytes = peak_bytes_;
  if (valid) metrics.valid_loss = valid->loss;
  std::vector<ExtraMetric> extra;
  if (valid) add_evaluation(*valid, extra);
  if (!config_.data.cross_documents) {
    extra.push_back({"loss_tokens", static_cast<double>(result.targets)});
  }
  if (config_.compute_type() == DType::kF16) {
    extra.push_back({"loss_scale", result.loss_scale});
    extra.push_back({"skipped", static_cast<double>(result.skipped)});
  }
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    extra.push_back({"samples/" + config_.data.train[i], static_cast<double>(drawn[i])});
  }
  metrics_.write(metrics_line(metrics, extra));
  write_events(metrics, valid);
  progress_.step({.step = step,
                  .loss = metrics.loss,
                  .tokens_per_s = metrics.tokens_per_s,
                  .mfu = metrics.mfu});
  if (!result.is_finite) {
    message(
        fmt::format("step {}: gradients overflowed at loss scale {}; the step is skipped and "
                    "the scale halved",
                    step, result.loss_scale));
  }
  if (valid) progress_.evaluation(step, *valid);
}

void Report::write_events(const StepMetrics& metrics, const std::optional<EvalResult>& valid) {
  std::vector<std::string> tags;  // that the scalars refer to
  std::vector<EventScalar> scalars = {{"train/loss", metrics.loss},
                                      {"train/grad_norm", metrics.grad_norm},
                                      {"train/lr", metrics.lr},
                                      {"speed/tokens_per_s", metrics.tokens_per_s}};
  if (valid) {
    scalars.push_back({"valid/loss", valid->loss});
    tags.reserve(valid->sources.size());
    if (valid->sources.size() > 1) {
      for (const SourceLoss& source : valid->sources) {
        scalars.push_back({tags.emplace_back("valid/loss/" + source.prefix), source.loss});
      }
    }
  }
  events_.write(wall_s(), metrics.step, scalars);
}

}  // namespace orthant
