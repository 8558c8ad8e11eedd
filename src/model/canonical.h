// The canonical parameters of a model: the one place that says their names, shapes, order, splits
// and initial values. Layers, checkpoints and the Hugging Face mapping follow this list.
#pragma once

#include <cstdint>
#include <vector>

#include "model/model_config.h"
#include "params/param.h"

namespace orthant {

// The parameters of each unit, in its order. `config` is complete.
std::vector<ParamSpec> embedding_params(const ModelConfig& config);
std::vector<ParamSpec> block_params(const ModelConfig& config, std::int64_t layer);
std::vector<ParamSpec> final_params(const ModelConfig& config);  // the head's weight unless tied

// All of them in model order: embedding, blocks, final.
std::vector<ParamSpec> canonical_params(const ModelConfig& config);

}  // namespace orthant
