// Warm-up, then cosine, linear, constant, or wsd (warm-up, stable, decay).
#include "optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "base/text.h"

namespace orthant {
namespace {

const std::vector<std::string>& decays() {
  static const std::vector<std::string> kNames = {"cosine", "linear", "constant", "wsd"};
  return kNames;
}

// Steps of the wsd decay. The default never reaches into the warm-up.
std::int64_t wsd_decay_steps(const LrConfig& config) {
  if (config.decay_steps > 0) return config.decay_steps;
  const std::int64_t after_warmup = std::max<std::int64_t>(config.steps - config.warmup_steps, 1);
  return std::clamp<std::int64_t>(config.steps / 10, 1, after_warmup);
}

// The part of lr - min_lr that is left at `step`, after the warm-up and before the end.
double share_left(const LrConfig& config, std::int64_t step) {
  constexpr double kPi = 3.14159265358979323846;
  const bool is_wsd = config.decay == "wsd";
  const std::int64_t begin = is_wsd ? config.steps - wsd_decay_steps(config) : config.warmup_steps;
  if (step <= begin) return 1;
  const double done = static_cast<double>(step - begin) / static_cast<double>(config.steps - begin);
  return config.decay == "cosine" ? 0.5 * (1 + std::cos(kPi * done)) : 1 - done;
}

}  // namespace

void check_lr(const LrConfig& config) {
  const auto& known = decays();
  if (std::find(known.begin(), known.end(), config.decay) == known.end()) {
    fail_user("optimizer.decay='{}' is not known; did you mean '{}'? Known are {}", config.decay,
              nearest(config.decay, known), join(known));
  }
  if (!std::isfinite(config.lr) || config.lr < 0) {
    fail_user("optimizer.lr={} is not a learning rate; it must be finite and not negative",
              config.lr);
  }
  const bool is_min_used = config.decay != "constant";
  if (is_min_used && !(config.min_lr >= 0 && config.min_lr <= config.lr)) {
    fail_user("optimizer.min_lr={} must lie between 0 and optimizer.lr={}; lower it or raise lr",
              config.min_lr, config.lr);
  }
  if (config.steps < 0) {
    fail_user("train.steps={} is negative; give the number of steps to train", config.steps);
  }
  if (config.warmup_steps < 0) {
    fail_user("optimizer.warmup_steps={} is negative; use 0 for no warm-up", config.warmup_steps);
  }
  if (config.decay_steps < 0) {
    fail_user("optimizer.decay_steps={} is negative; use 0 for a tenth of the steps",
              config.decay_steps);
  }
  const std::int64_t after_warmup = std::max<std::int64_t>(config.steps - config.warmup_steps, 0);
  if (config.decay == "wsd" && config.decay_steps > after_warmup) {
    fail_user(
        "optimizer.decay_steps={} does not fit: train.steps={} and warmup_steps={} leave {} steps; "
        "use at most {}",
        config.decay_steps, config.steps, config.warmup_steps, after_warmup, after_warmup);
  }
}

double lr_at(const LrConfig& config, std::int64_t step) {
  ORTHANT_CHECK(step >= 1, "the learning rate of step {} was asked; steps count from 1", step);
  if (step <= config.warmup_steps) {
    return config.lr * static_cast<double>(step) / static_cast<double>(config.warmup_steps);
  }
  if (config.decay == "constant") return config.lr;
  if (step >= config.steps) return config.min_lr;
  return config.min_lr + (config.lr - config.min_lr) * share_left(config, step);
}

}  // namespace orthant
