// Where a run's weights come from: the newest checkpoint, a Hugging Face folder, or the seed.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/checkpoint.h"
#include "params/param_source.h"
#include "train/rank.h"
#include "train/run_config.h"

namespace orthant {

class ProcessWorld;

struct Weights {
  std::unique_ptr<ParamSource> source;
  std::optional<Manifest> resumed;  // of the checkpoint that they come from
  std::string origin;  // for people: "checkpoint ckpt/step-00000400", "initial values of seed 1"
  std::vector<std::string> passed_over;  // damaged checkpoints
};

// A checkpoint of another model is a user error.
Weights find_weights(const RunConfig& config);
// The steps done must have used the samples that this run file says they used: else the data would
// be skipped or repeated. A user error otherwise.
void require_same_position(const RunConfig& config, const Manifest& manifest);
// A checkpoint that is not what was written, bit for bit, is a user error; each process reads a
// part.
void verify(const ParamSource& source, const ProcessWorld* world);
// Fills a rank, which gives signs of life meanwhile.
void load_weights(Rank& rank, const ParamSource& source);

Weights weights_of_checkpoint(const ModelConfig& model, const std::string& folder);

// The model's config as the manifest keeps it.
std::vector<std::pair<std::string, std::string>> model_fields(const ModelConfig& model);
ModelConfig model_of(const Manifest& manifest, const std::string& folder);

}  // namespace orthant
