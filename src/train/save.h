// Going on from a checkpoint, and saving gradients: every rank its own runs.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "ckpt/checkpoint.h"
#include "train/rank.h"
#include "train/run_config.h"

namespace orthant {

// Goes on where the steps of a checkpoint ended; its weights are loaded apart from this.
void resume(Rank& rank, const Manifest& manifest);

// All ranks call it together while gradients are summed. They are written to a new folder as the
// files of canonical weights are: whole, f32, of the loss itself where that is scaled.
void write_gradients(Rank& rank, const ModelConfig& model, const std::string& folder);
// What they have written.
StateSource read_gradients(const ModelConfig& model, const std::string& folder);

// All ranks call it together while gradients are summed. The file has Hugging Face's names.
void save_gradients(Rank& rank, const RunConfig& config, const std::string& path);
// What a save_gradients() that failed has left.
void remove_unfinished_gradients(const std::string& path) noexcept;

}  // namespace orthant
