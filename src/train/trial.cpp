#include "train/trial.h"

#include <algorithm>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "model/canonical.h"
#include "params/state_reader.h"
#include "train/run_data.h"
#include "train/save.h"
#include "train/saver.h"
#include "train/small_run.h"
#include "train/tensor_survey.h"
#include "train/weights.h"

namespace orthant {
namespace {

// So low that no gradient of a small model overflows.
void lower_loss_scale(Rank& rank) {
  constexpr double kScale = 256;
  StepState state = rank.kept();
  if (state.scale_window == 0) return;
  state.loss_scale = kScale;
  rank.keep(state);
}

// All ranks together; of rank 0.
void look_for_strays(Rank& rank, const ModelConfig& model, std::vector<std::string>& strays) {
  const std::vector<ParamSpec> params = canonical_params(model);
  TensorSurvey survey(rank, params);
  std::vector<std::string> found = survey.find_strays();
  for (std::string& repeat : survey.find_repeats(survey.square_sums(TensorSurvey::What::kWeight))) {
    found.push_back(std::move(repeat));
  }
  if (rank.mesh().rank() == 0) strays = std::move(found);
}

void train(Rank& rank, Trial& trial) {
  load_weights(rank, trial.weights);
  look_for_strays(rank, trial.config.model, trial.strays_at_start);
  lower_loss_scale(rank);
  if (trial.resumed != nullptr) resume(rank, *trial.resumed);
  TrainFeed feed(trial.config, trial.data, rank.mesh().coord(Axis::kDp), trial.first_step());
  for (std::int64_t step = trial.first_step(); step <= kSmallSteps; ++step) {
    const std::span<const HostMicro> micros = feed.next();
    const int num_micros = static_cast<int>(micros.size());
    rank.gradients(step, micros, num_micros);
    write_gradients(rank, trial.config.model, trial.gradients_of(step));
    const StepResult result = rank.step(step, trial.config.optimizer.lr, micros, num_micros);
    if (rank.mesh().rank() == 0) trial.steps.push_back(result);
    const bool is_kept = step == Trial::kSavedStep || step == kSmallSteps;
    if (trial.saves && is_kept) save_checkpoint(rank, trial.config, step, {});
  }
  look_for_strays(rank, trial.config.model, trial.strays_at_end);
}

// On one rank it lies in one piece.
std::vector<float> gradient_of(Rank& rank, const std::string& name, double factor) {
  const std::vector<ParamStore::Owned> all = rank.store().owned();
  const auto owned = std::find_if(
      all.begin(), all.end(), [&name](const ParamStore::Owned& o) { return o.piece.name == name; });
  std::vector<float> values(static_cast<std::size_t>(owned->piece.count));
  read_back(rank.device(), values, owned->grad);
  for (float& value : values) {
    value = static_cast<float>(value * factor);
  }
  return values;
}

}  // namespace

std::string Trial::gradients_of(std::int64_t step) const {
  return fmt::format("{}/{}-{}", config.log.dir, name, step);
}

std::string Trial::checkpoint_of(std::int64_t step) const {
  return fmt::format("{}/step-{:08}", config.checkpoint.dir, step);
}

void Trial::run(const RankRunner& runner) {
  const RankConfig rank = rank_config(config);
  runner(rank, plan_run(rank, 0), [this](Rank& r, int) { train(r, *this); });
}

std::vector<std::vector<float>> gradients_by_micro(const Trial& plain, const ParamSpec& spec,
                                                   const RankRunner& runner) {
  std::vector<std::vector<float>> parts;
  const RankConfig config = rank_config(plain.config);
  runner(config, plan_run(config, 0), [&](Rank& rank, int) {
    load_weights(rank, plain.weights);
    lower_loss_scale(rank);
    TrainFeed feed(plain.config, plain.data, 0, 1);
    const std::span<const HostMicro> micros = feed.next();
    // Of a step of one micro-batch a mean is taken over that alone.
    const double share = 1 / (rank.kept().loss_scale * static_cast<double>(micros.size()));
    for (std::size_t i = 0; i < micros.size(); ++i) {
      rank.gradients(1, micros.subspan(i, 1), 1);
      parts.push_back(gradient_of(rank, spec.name, share));
    }
  });
  return parts;
}

}  // namespace orthant
