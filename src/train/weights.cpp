#include "train/weights.h"

#include "base/check.h"
#include "base/text.h"
#include "base/toml.h"
#include "ckpt/foreign.h"
#include "comm/process_world.h"
#include "train/initial_weights.h"

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

// Values of another source; each read is a sign of life of the rank that reads.
class LivingSource final : public ParamSource {
 public:
  LivingSource(const ParamSource& source, Communicator& world) : source_(source), world_(world) {}
  void read(const ParamSpec& param, StateKind state, std::int64_t first,
            std::span<float> into) const override {
    source_.read(param, state, first, into);
    world_.sign_of_life(0);
  }

 private:
  const ParamSource& source_;
  Communicator& world_;
};

}  // namespace

void verify(const ParamSource& source, const ProcessWorld* world) {
  source.verify({.part = world == nullptr ? 0 : world->rank(),
                 .parts = world == nullptr ? 1 : world->size(),
                 .has_moments = true});
}

void load_weights(Rank& rank, const ParamSource& source) {
  rank.store().load(LivingSource(source, rank.mesh().world()));
}

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
    text += fmt::format("{} = {}\n", key, value);
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

void require_same_position(const RunConfig& config, const Manifest& manifest) {
  const std::int64_t samples = config.samples_before(manifest.step + 1);
  if (samples == manifest.position) return;
  fail_user(
      "the checkpoint of step {} stands after {} sequences, this run file's first {} steps use {}; "
      "leave "
      "train.global_batch and train.batch_ramp for those steps as they were, and change the batch "
      "with "
      "train.batch_ramp = [[{}, new]]",
      manifest.step, manifest.position, manifest.step, samples, manifest.step + 1);
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
    if (!newest && config.checkpoint.resume) refuse_foreign(config.checkpoint.dir);
    if (!newest && config.checkpoint.resume && !weights.passed_over.empty()) {
      fail_user(
          "checkpoint.dir={} has no whole checkpoint: {}; restore one, name another folder, or "
          "start anew with "
          "checkpoint.resume=false",
          config.checkpoint.dir, join(weights.passed_over, "; "));
    }
  }
  if (!config.origin.weights.empty()) {
    Weights initial = initial_weights(config.model, config.origin.weights);
    initial.passed_over.insert(initial.passed_over.begin(), weights.passed_over.begin(),
                               weights.passed_over.end());
    return initial;
  }
  weights.source = std::make_unique<InitSource>(static_cast<std::uint64_t>(config.train.seed));
  weights.origin = fmt::format("initial values of seed {}", config.train.seed);
  return weights;
}

}  // namespace orthant
