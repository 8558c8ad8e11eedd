#include "train/compare_trials.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "ckpt/checkpoint.h"
#include "model/canonical.h"
#include "train/compare_gradients.h"
#include "train/save.h"
#include "train/small_run.h"

namespace orthant {
namespace {

constexpr const char* kWrong = "self-check: this layout does not train what one rank trains.";
constexpr const char* kStops = "self-check: a checkpoint of this layout does not go on as it was.";
constexpr const char* kAdvice = "Nothing was trained; use another layout, and report this";

void require_none(const std::vector<std::string>& strays, const char* when) {
  if (strays.empty()) return;
  fail_run("{} In a small model, {}, {}. {}", kWrong, when, strays.front(), kAdvice);
}

// One trial against that of one rank.
class Comparison {
 public:
  Comparison(const Trial& found, const Trial& plain, const LayoutTolerance& tolerance,
             const RankRunner& runner)
      : found_(found),
        plain_(plain),
        tolerance_(tolerance),
        runner_(runner),
        params_(canonical_params(found.config.model)) {}

  // The first that went wrong is said.
  void compare() {
    require_none(found_.strays_at_start, "with the weights that it began with");
    compare_step(1);
    require_none(found_.strays_at_end, "after its updates");
    for (std::int64_t step = 2; step <= kSmallSteps; ++step) {
      compare_step(step);
    }
  }
  std::string summary() const {
    const auto text = [](const LayoutTolerance::Step& step) {
      return fmt::format("{:.1e} in loss, {:.1e} in norm, {:.1e} in a gradient", step.loss,
                         step.norm, step.gradient);
    };
    return fmt::format("step 1 differs by {}, later ones by {}", text(largest_.first),
                       text(largest_.later));
  }

 private:
  void compare_step(std::int64_t step) {
    const LayoutTolerance::Step& allowed = step == 1 ? tolerance_.first : tolerance_.later;
    LayoutTolerance::Step& largest = step == 1 ? largest_.first : largest_.later;
    compare_gradients(step, allowed, largest);
    const StepResult& own = found_.steps[static_cast<std::size_t>(step - 1)];
    const StepResult& plain = plain_.steps[static_cast<std::size_t>(step - 1)];
    const double norm_off = std::abs(own.grad_norm / plain.grad_norm - 1);
    if (!(norm_off <= allowed.norm)) {
      fail_run(
          "{} In step {} of a small model the gradient norm is {:.8g}, expected {:.8g}, though "
          "each gradient is right: it looks as if some were counted more than once, or not at all. "
          "{}",
          kWrong, step, own.grad_norm, plain.grad_norm, kAdvice);
    }
    const double loss_off = std::abs(own.loss - plain.loss);
    if (!(loss_off <= allowed.loss)) {
      fail_run(
          "{} In step {} of a small model the loss is {:.8g}, expected {:.8g}, and {:.3g} is "
          "allowed, though each gradient is right. {}",
          kWrong, step, own.loss, plain.loss, allowed.loss, kAdvice);
    }
    largest.norm = std::max(largest.norm, norm_off);
    largest.loss = std::max(largest.loss, loss_off);
  }
  void compare_gradients(std::int64_t step, const LayoutTolerance::Step& tolerance,
                         LayoutTolerance::Step& largest) {
    const double allowed = tolerance.gradient;
    const StateSource expected = read_gradients(plain_.config.model, plain_.gradients_of(step));
    const StateSource own = read_gradients(found_.config.model, found_.gradients_of(step));
    const std::vector<TensorDifference> all = compare_all(params_, expected, own);
    const TensorDifference& worst = all.front();
    largest.gradient = std::max(largest.gradient, worst.error);
    if (worst.error <= allowed) return;
    const auto others = std::count_if(all.begin() + 1, all.end(), [allowed](const auto& tensor) {
      return !(tensor.error <= allowed);
    });
    std::string why = explain(all, allowed, found_.config);
    if (step > 1) {
      why = "the update before was wrong, or new weights have not come everywhere";
    } else if (why.empty()) {
      Trial micros = plain_;
      micros.config = on_one_rank(found_.config, found_.config.layout.micro_batch);
      why = explain_by_micro(whole_tensor(expected, *worst.spec), whole_tensor(own, *worst.spec),
                             gradients_by_micro(micros, *worst.spec, runner_),
                             found_.config.layout.dp());
    }
    fail_run(
        "{} In step {} of a small model the gradient of {} is off by {:.3g} of its norm, {:.3g} is "
        "allowed: its norm is {:.6g}, expected {:.6g}; {} of {} other tensors are off, too. It "
        "looks as if {}. {}",
        kWrong, step, worst.spec->name, worst.error, allowed, worst.found, worst.expected, others,
        all.size() - 1, why, kAdvice);
  }

  const Trial& found_;
  const Trial& plain_;
  LayoutTolerance tolerance_;
  const RankRunner& runner_;
  std::vector<ParamSpec> params_;
  LayoutTolerance largest_;  // differences so far
};

}  // namespace

LayoutTolerance layout_tolerance(const RunConfig& config) {
  const bool adds_roughly = config.precision.grad_accum == "bf16";
  if (adds_roughly || config.compute_type() == DType::kBF16) {
    return {.first = {.loss = 2e-2, .norm = 2e-2, .gradient = 0.1},
            .later = {.loss = 2e-2, .norm = 2e-2, .gradient = 0.4}};
  }
  if (config.compute_type() == DType::kF16) {
    return {.first = {.loss = 2e-3, .norm = 2e-3, .gradient = 2e-2},
            .later = {.loss = 2e-3, .norm = 2e-3, .gradient = 0.1}};
  }
  return {.first = {.loss = 1e-5, .norm = 1e-4, .gradient = 1e-4},
          .later = {.loss = 1e-5, .norm = 1e-4, .gradient = 1e-3}};
}

bool repeats_bits(const RunConfig& config) {
  return config.device.kind == "cpu" || config.train.deterministic;
}

bool keeps_bits(const RunConfig& config) {
  return config.layout.tp == 1 && config.layout.dp() == 1 && repeats_bits(config);
}

std::string compare_with_one_rank(const Trial& found, const Trial& whole,
                                  const RankRunner& runner) {
  Comparison comparison(found, whole, layout_tolerance(found.config), runner);
  comparison.compare();
  return comparison.summary();
}

void compare_bits(const Trial& found, const Trial& micros, const RankRunner& runner) {
  Comparison(found, micros, {}, runner).compare();
}

// `again` began where `once` had saved.
void compare_resumed(const Trial& once, const Trial& again) {
  require_none(again.strays_at_start, "with the weights of its checkpoint");
  const double allowed = repeats_bits(once.config) ? 0 : layout_tolerance(once.config).later.loss;
  for (std::int64_t step = again.first_step(); step <= kSmallSteps; ++step) {
    const double found = again.steps[static_cast<std::size_t>(step - again.first_step())].loss;
    const double expected = once.steps[static_cast<std::size_t>(step - 1)].loss;
    if (std::abs(found - expected) <= allowed) continue;
    fail_run(
        "{} After that of step {} of a small model the loss of step {} is {:.17g}, without a stop "
        "{:.17g}. {}",
        kStops, Trial::kSavedStep, step, found, expected, kAdvice);
  }
  if (!repeats_bits(once.config)) return;
  const Manifest expected = open_checkpoint(once.checkpoint_of(kSmallSteps)).manifest;
  const Manifest found = open_checkpoint(again.checkpoint_of(kSmallSteps)).manifest;
  for (const auto& [tensor, sum] : found.checksums) {
    if (expected.checksums.at(tensor) == sum) continue;
    fail_run(
        "{} After that of step {} of a small model {} has other bits at step {} than without a "
        "stop. {}",
        kStops, Trial::kSavedStep, tensor, kSmallSteps, kAdvice);
  }
}

}  // namespace orthant
