// TextModel: what text is written with: a run file, a checkpoint or a Hugging Face folder, and the
// tokenizer that goes with it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/tokenizer.h"
#include "train/weights.h"

namespace orthant {

struct ModelRequest {
  std::string path;  // a run file, a checkpoint, a directory of checkpoints, a Hugging Face folder
  std::string checkpoint;              // in place of a run file's newest; empty: that
  std::vector<std::string> overrides;  // of a run file: --section.key=value
};

struct TextModel {
  ModelConfig model;
  DType compute = DType::kF32;
  std::string device = "cpu";
  Weights weights;
  std::vector<std::int32_t> ends;    // tokens that end a text, as far as the folder says
  std::vector<std::string> folders;  // where a tokenizer may lie
};

// What is not there is a user error.
TextModel find_text_model(const ModelRequest& request);

// `spec` as of make_tokenizer; empty: a file of the model's folders, or bytes for up to 256 tokens.
std::unique_ptr<Tokenizer> find_tokenizer(const std::string& spec, const TextModel& model);

// The ids of the prompt; an empty one is the beginning of a document.
std::vector<std::int32_t> encode_prompt(const Tokenizer& tokenizer, const TextModel& model,
                                        const std::string& prompt);

}  // namespace orthant
