// model.weights: what training begins from. A Hugging Face folder, a checkpoint of ours, or a
// directory of those, of which the newest whole one is meant. Only the weights are taken: moments
// begin at 0, steps at 1.
#pragma once

#include <string>

#include "train/weights.h"

namespace orthant {

// Whether `path` is a checkpoint of ours or a directory of some; else it is taken for a Hugging
// Face folder.
bool has_checkpoint(const std::string& path);

// The model that the weights are of. A user error where there are none.
ModelConfig stored_model(const std::string& path);

Weights initial_weights(const ModelConfig& model, const std::string& path);

}  // namespace orthant
