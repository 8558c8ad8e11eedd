// The run file into a RunConfig: the model is found first, then the file is read over it.
#include "train/run_config.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/toml.h"
#include "hf/hf_config.h"
#include "train/initial_weights.h"
#include "train/run_batch.h"

namespace orthant {
namespace {

// Sets the options of `config` from the run file and the command line.
FieldList read_options(RunConfig& config, std::string_view text, const std::string& source,
                       const std::vector<std::string>& overrides) {
  FieldList fields = list_fields(config);
  read_toml(fields, text, source);
  for (const std::string& argument : overrides) {
    apply_override(fields, argument);
  }
  return fields;
}

// Values that follow from others, so that they follow again when the run file changes those.
void forget_derived(ModelConfig& model) {
  if (model.kv_heads == model.heads) model.kv_heads = 0;
  if (model.head_dim * model.heads == model.hidden) model.head_dim = 0;
  if (model.ffn == 4 * model.hidden) model.ffn = 0;
}

// The model that the run file begins with, and what to call it in messages.
struct Base {
  ModelConfig model;
  std::string name;
};

Base find_base(const RunConfig& given) {
  const ModelOrigin& origin = given.origin;
  if (!origin.preset.empty() && !origin.config.empty()) {
    fail_user("model.preset='{}' and model.config='{}' are both given; keep one", origin.preset,
              origin.config);
  }
  if (!origin.preset.empty()) return {preset(origin.preset), "preset " + origin.preset};
  if (!origin.config.empty()) return {read_hf_config(origin.config).model, origin.config};
  if (!origin.weights.empty()) return {stored_model(origin.weights), origin.weights};
  return {family_defaults(given.model.family), ""};
}

FieldList list_model(ModelConfig& model) {
  FieldList fields;
  fields.add("model", model);
  return fields;
}

std::string where_given(const FieldList& options, const std::string& key) {
  for (const FieldRef& field : options.all()) {
    if (field.section == "model" && field.key == key && !field.given.empty()) {
      return " (" + field.given + ")";
    }
  }
  return "";
}

// How a model is trained, not what it is: free to differ from what the weights say.
bool is_free(const std::string& key, const ModelConfig& model) {
  return key == "family" || key == "dropout" || key == "init_std" ||
         (key == "max_positions" && model.position != "learned");
}

// Weights fix what they are weights of.
void check_weights(const RunConfig& config, const FieldList& options) {
  if (config.origin.weights.empty()) return;
  ModelConfig stored = stored_model(config.origin.weights);
  ModelConfig wanted = config.model;
  const FieldList stored_fields = list_model(stored);
  const FieldList wanted_fields = list_model(wanted);
  for (std::size_t i = 0; i < stored_fields.all().size(); ++i) {
    const FieldRef& field = wanted_fields.all()[i];
    const std::string found = value_text(field.value);
    const std::string fixed = value_text(stored_fields.all()[i].value);
    if (found == fixed || is_free(field.key, stored)) continue;
    fail_user(
        "model.{}={}{} does not fit the weights in {}, which have {}; remove it or use other "
        "weights",
        field.key, found, where_given(options, field.key), config.origin.weights, fixed);
  }
}

}  // namespace

RunConfig parse_run_config(std::string_view text, const std::string& source,
                           const std::vector<std::string>& overrides) {
  RunConfig given;
  read_options(given, text, source, overrides);
  const Base base = find_base(given);

  RunConfig config;
  config.model = base.model;
  forget_derived(config.model);
  const FieldList options = read_options(config, text, source, overrides);
  if (config.model.family != base.model.family) {
    fail_user("model.family='{}'{} is not that of {}, which is '{}'; remove one",
              config.model.family, where_given(options, "family"), base.name, base.model.family);
  }
  complete(config.model);
  check_weights(config, options);
  settle_batch(config, options);
  validate(config);
  return config;
}

RunConfig load_run_config(const std::string& path, const std::vector<std::string>& overrides) {
  return parse_run_config(read_text_file(path), path, overrides);
}

std::string to_toml(const RunConfig& config) {
  RunConfig copy = config;
  return to_toml(list_fields(copy));
}

std::int64_t RunConfig::global_batch_at(std::int64_t step) const {
  std::int64_t batch = train.global_batch;
  for (const std::vector<std::int64_t>& entry : train.batch_ramp) {
    if (entry[0] <= step) batch = entry[1];
  }
  return batch;
}

std::int64_t RunConfig::samples_before(std::int64_t step) const {
  std::int64_t samples = 0;
  std::int64_t from = 1;
  std::int64_t batch = train.global_batch;
  for (const std::vector<std::int64_t>& entry : train.batch_ramp) {
    const std::int64_t until = std::clamp(entry[0], from, std::max(step, from));
    samples += (until - from) * batch;
    from = until;
    batch = entry[1];
  }
  return samples + (std::max(step, from) - from) * batch;
}

std::int64_t RunConfig::max_global_batch() const {
  return step_batches().back();
}

std::vector<std::int64_t> RunConfig::step_batches() const {
  std::set<std::int64_t> batches = {global_batch_at(1)};
  for (const std::vector<std::int64_t>& entry : train.batch_ramp) {
    if (entry[0] <= train.steps) batches.insert(entry[1]);
  }
  return {batches.begin(), batches.end()};
}

std::vector<std::string> RunConfig::valid_prefixes() const {
  if (!data.valid.empty() || data.split.empty()) return data.valid;
  std::vector<std::string> prefixes;
  for (const std::string& prefix : data.train) {
    if (std::find(prefixes.begin(), prefixes.end(), prefix) == prefixes.end()) {
      prefixes.push_back(prefix);
    }
  }
  return prefixes;
}

DType RunConfig::compute_type() const {
  if (precision.compute == "fp16") return DType::kF16;
  return precision.compute == "bf16" ? DType::kBF16 : DType::kF32;
}

LrConfig RunConfig::lr() const {
  return {.lr = optimizer.lr,
          .min_lr = optimizer.min_lr,
          .warmup_steps = optimizer.warmup_steps,
          .steps = train.steps,
          .decay_steps = optimizer.decay_steps,
          .decay = optimizer.decay};
}

AdamWConfig RunConfig::adamw() const {
  return {.beta1 = optimizer.beta1,
          .beta2 = optimizer.beta2,
          .eps = optimizer.eps,
          .weight_decay = optimizer.weight_decay};
}

}  // namespace orthant
