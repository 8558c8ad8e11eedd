#include "train/weights.h"

#include "base/check.h"
#include "base/toml.h"
#include "hf/hf_source.h"

namespace orthant {
namespace {

void require_same_model(const ModelConfig& model, const Manifest& manifest,
                        const std::string& folder) {
  const auto wanted = model_fields(model);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const bool same = i < manifest.model.size() && manifest.model[i] == wanted[i];
    const bool matters = wanted[i].first != "dropout" && wanted[i].first != "init_std" &&
                         wanted[i].first != "family";
    if (same || !matters) continue;
    fail_user(
        "checkpoint {} is of another model: its {} is {}, the run's is {}; name another "
        "checkpoint.dir or set "
        "checkpoint.resume=false",
        folder, wanted[i].first, i < manifest.model.size() ? manifest.model[i].second : "absent",
        wanted[i].second);
  }
}

}  // namespace

std::vector<std::pair<std::string, std::string>> model_fields(const ModelConfig& model) {
  ModelConfig copy = model;
  FieldList fields;
  fields.add("model", copy);
  std::vector<std::pair<std::string, std::string>> all;
  for (const FieldRef& field : fields.all()) {
    all.emplace_back(field.key, value_text(field.value));
  }
  return all;
}

ModelConfig model_of(const Manifest& manifest, const std::string& folder) {
  std::string text = "[model]\n";
  for (const auto& [key, value] : manifest.model) {
    text += key + " = " + value + "\n";
  }
  ModelConfig model;
  FieldList fields;
  fields.add("model", model);
  read_toml(fields, text, folder + "/manifest.json");
  complete(model);
  return model;
}

Weights weights_of_checkpoint(const ModelConfig& model, const std::string& folder) {
  const Checkpoint checkpoint = open_checkpoint(folder);
  require_same_model(model, checkpoint.manifest, folder);
  return {.source = checkpoint_source(checkpoint),
          .resumed = checkpoint.manifest,
          .origin = "checkpoint " + folder,
          .passed_over = {}};
}

Weights find_weights(const RunConfig& config) {
  Weights weights;
  if (!config.checkpoint.dir.empty()) {
    const auto newest = newest_checkpoint(config.checkpoint.dir, weights.passed_over);
    if (newest && !config.checkpoint.resume) {
      weights.passed_over.push_back(fmt::format(
          "checkpoint.resume=false: {} is not used, but stays the newest until this run "
          "has passed step {}",
          newest->folder, newest->manifest.step));
    } else if (newest) {
      std::vector<std::string> passed_over = std::move(weights.passed_over);
      weights = weights_of_checkpoint(config.model, newest->folder);
      weights.passed_over = std::move(passed_over);
      return weights;
    }
  }
  if (!config.origin.weights.empty()) {
    weights.source = std::make_unique<HfSource>(config.model, config.origin.weights);
    weights.origin = "Hugging Face folder " + config.origin.weights;
  } else {
    weights.source = std::make_unique<InitSource>(static_cast<std::uint64_t>(config.train.seed));
    weights.origin = fmt::format("initial values of seed {}", config.train.seed);
  }
  return weights;
}

}  // namespace orthant
