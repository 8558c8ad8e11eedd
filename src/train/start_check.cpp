#include "train/start_check.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>

#include <fmt/format.h>

#include "base/check.h"
#include "base/file.h"
#include "base/text.h"
#include "model/canonical.h"
#include "train/tensor_survey.h"

namespace orthant {
namespace {

using What = TensorSurvey::What;

// Restores what a rank keeps from step to step.
class KeptState {
 public:
  explicit KeptState(Rank& rank) : rank_(rank), state_(rank.kept()) {}
  ~KeptState() { rank_.keep(state_); }
  KeptState(const KeptState&) = delete;
  KeptState& operator=(const KeptState&) = delete;

 private:
  Rank& rank_;
  StepState state_;
};

// In fp16, as the first step that is not skipped would have them.
StepResult first_gradients(Rank& rank, const StartInput& start) {
  const int num_micros = static_cast<int>(start.micros.size());
  StepResult result = rank.gradients(start.step, start.micros, num_micros);
  while (!result.is_finite && result.can_go_on) {
    StepState state = rank.kept();
    state.loss_scale /= 2;
    rank.keep(state);
    result = rank.gradients(start.step, start.micros, num_micros);
  }
  return result;
}

std::string layer_of(const std::string& param) {
  const std::size_t from = param.starts_with("h.") ? 2 : 0;
  return param.substr(0, param.find('.', from));
}

std::vector<LayerFacts> layer_facts(const std::vector<ParamSpec>& params,
                                    const std::vector<double>& gradients,
                                    const std::vector<double>& weights) {
  std::vector<LayerFacts> layers;
  std::vector<double> counts;
  for (std::size_t i = 0; i < params.size(); ++i) {
    const std::string name = layer_of(params[i].name);
    if (layers.empty() || layers.back().name != name) {
      layers.push_back({.name = name, .weakest = params[i].name, .weakest_norm = gradients[i]});
      counts.push_back(0);
    }
    LayerFacts& layer = layers.back();
    layer.gradient_norm = std::hypot(layer.gradient_norm, gradients[i]);
    layer.weight_rms += weights[i];
    counts.back() += static_cast<double>(params[i].global.count());
    if (gradients[i] < layer.weakest_norm) {
      layer.weakest = params[i].name;
      layer.weakest_norm = gradients[i];
    }
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    layers[i].weight_rms = std::sqrt(layers[i].weight_rms / counts[i]);
  }
  return layers;
}

bool is_residual_projection(const std::string& param) {
  return param.ends_with(".attn.proj.weight") || param.ends_with(".mlp.down.weight");
}

// The spread of initial weights, as the model's config says it.
void check_spread(const ModelConfig& model, const std::vector<ParamSpec>& params,
                  const std::vector<double>& weights, std::vector<std::string>& faults) {
  const double depth = std::sqrt(2.0 * static_cast<double>(model.layers));
  std::string first;
  int count = 0;
  for (std::size_t i = 0; i < params.size(); ++i) {
    if (params[i].init.kind != Init::Kind::kNormal) continue;
    const auto elements = static_cast<double>(params[i].global.count());
    const bool is_scaled = is_residual_projection(params[i].name);
    const double expected = is_scaled ? model.init_std / depth : model.init_std;
    const double found = std::sqrt(weights[i] / elements);
    // Six standard deviations of what is measured on so few.
    const double allowed = std::max(0.05, 6 / std::sqrt(2 * elements));
    if (std::abs(found / expected - 1) <= allowed || ++count > 1) continue;
    const bool lacks_scale = is_scaled && std::abs(found / (expected * depth) - 1) <= allowed;
    first = fmt::format(
        "the weights of {} spread by {:.4g}, expected {:.4g}{}", params[i].name, found, expected,
        lacks_scale ? ": the scale 1/sqrt(2*layers) of residual projections is missing" : "");
  }
  if (count > 1) first += fmt::format("; so do those of {} more tensors", count - 1);
  if (count > 0) faults.push_back(first);
}

void check_dead(const RunConfig& config, const std::vector<ParamSpec>& params,
                const std::vector<double>& gradients, std::vector<std::string>& faults) {
  std::vector<std::string> dead;
  for (std::size_t i = 0; i < params.size(); ++i) {
    // Queries and keys choose between positions.
    const bool has_choice =
        config.train.seq_length > 1 || params[i].name.find(".attn.q.") == std::string::npos;
    if (gradients[i] == 0 && has_choice) dead.push_back(params[i].name);
  }
  if (dead.empty()) return;
  const std::string more =
      dead.size() == 1 ? "" : fmt::format(", and of {} more tensors", dead.size() - 1);
  faults.push_back(
      fmt::format("dead layer {}: the gradient of {} is zero{}", layer_of(dead[0]), dead[0], more));
}

void check_explosion(const std::vector<LayerFacts>& layers, std::vector<std::string>& faults) {
  std::vector<const LayerFacts*> blocks;
  for (const LayerFacts& layer : layers) {
    if (layer.name.starts_with("h.")) blocks.push_back(&layer);
  }
  std::sort(blocks.begin(), blocks.end(), [](const LayerFacts* a, const LayerFacts* b) {
    return a->gradient_norm < b->gradient_norm;
  });
  const LayerFacts& middle = *blocks[(blocks.size() - 1) / 2];
  const LayerFacts& largest = *blocks.back();
  if (middle.gradient_norm == 0) return;  // dead
  if (largest.gradient_norm <= kLargestNormRatio * middle.gradient_norm) return;
  faults.push_back(fmt::format(
      "exploding layer {}: its gradient norm is {:.4g}, that of {} is {:.4g}; {:g} times as much "
      "is allowed",
      largest.name, largest.gradient_norm, middle.name, middle.gradient_norm, kLargestNormRatio));
}

// Logits of initial weights are nearly normal, with variance hidden * init_std^2 behind a norm.
// With a tied table that of the input token itself may be as large as hidden * init_std.
void check_loss(const ModelConfig& model, double loss, std::vector<std::string>& faults) {
  constexpr double kSlack = 0.5;
  const auto width = static_cast<double>(model.hidden);
  const double level = std::log(static_cast<double>(model.vocab));
  const double even = level + 0.5 * width * model.init_std * model.init_std;
  const double own = model.tie_embeddings ? width * model.init_std : 0;
  const double most = std::max(even, own) + std::log1p(std::exp(-std::abs(even - own))) + kSlack;
  const double least = level - 0.1 * own - kSlack;
  if (loss >= least && loss <= (model.tie_embeddings ? most : even + kSlack)) return;
  faults.push_back(
      fmt::format("the loss is {:.4f}; of a new model with {} tokens it is near ln({}) = {:.4f}",
                  loss, model.vocab, model.vocab, level));
}

std::vector<double> norms_of(std::vector<double> square_sums, double scale) {
  std::transform(square_sums.begin(), square_sums.end(), square_sums.begin(),
                 [scale](double sum) { return std::sqrt(sum) / scale; });
  return square_sums;
}

}  // namespace

StartFindings examine_start(Rank& rank, const StartInput& start) {
  const ModelConfig& model = start.config.model;
  const std::vector<ParamSpec> params = canonical_params(model);
  const KeptState kept(rank);
  const StepResult result = first_gradients(rank, start);
  StartFindings findings{.loss = result.loss, .gradient_norm = result.grad_norm};
  std::vector<std::string>& faults = findings.faults;
  TensorSurvey survey(rank, params);
  faults = survey.find_strays();
  const std::vector<double> weights = survey.square_sums(What::kWeight);
  const std::vector<double> gradients =
      norms_of(survey.square_sums(What::kGradient), rank.kept().loss_scale);
  findings.layers = layer_facts(params, gradients, weights);
  std::vector<std::string> repeats = survey.find_repeats(weights);
  std::move(repeats.begin(), repeats.end(), std::back_inserter(faults));
  if (start.is_fresh) check_spread(model, params, weights, faults);
  if (!result.is_finite) {
    const int num_micros = static_cast<int>(start.micros.size());
    faults.push_back(fmt::format(
        "the loss is {} and the gradient norm {}; the first that is not "
        "finite is {}",
        std::abs(result.loss), result.grad_norm, rank.find_non_finite(start.micros, num_micros)));
    return findings;
  }
  check_dead(start.config, params, gradients, faults);
  check_explosion(findings.layers, faults);
  if (start.is_fresh) check_loss(model, result.loss, faults);
  return findings;
}

std::string start_table(const StartFindings& findings) {
  std::vector<std::vector<std::string>> rows = {
      {"layer", "gradient norm", "weight rms", "smallest", "of"}};
  for (const LayerFacts& layer : findings.layers) {
    rows.push_back({layer.name, fmt::format("{:.4e}", layer.gradient_norm),
                    fmt::format("{:.4e}", layer.weight_rms),
                    fmt::format("{:.4e}", layer.weakest_norm), layer.weakest});
  }
  return fmt::format("before the first step: loss {:.6f}, gradient norm {:.6f}\n{}", findings.loss,
                     findings.gradient_norm, format_table(rows));
}

void check_start(Rank& rank, const StartInput& start) {
  const StartFindings findings = examine_start(rank, start);
  if (rank.mesh().rank() == 0) {
    const std::string table = start_table(findings);
    fmt::print("{}\n", table);
    std::fflush(stdout);
    write_file_atomically(start.config.log.dir + "/self-check.txt", table + "\n");
    if (!findings.faults.empty()) {
      fail_run("self-check: this run does not begin as it should: {}. Nothing was trained; {}",
               join(findings.faults, "; "),
               start.is_fresh ? "report this" : "look at the weights that it begins with");
    }
  }
  // Where rank 0 has thrown, this ends with it.
  if (!findings.faults.empty()) rank.mesh().world().barrier();
}

}  // namespace orthant
