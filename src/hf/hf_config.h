// config.json of Hugging Face's transformers into a ModelConfig and back. What the model of
// transformers computes and ours does not is refused by name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mem/dtype.h"
#include "model/model_config.h"

namespace orthant {

// Tokens that generation needs to know.
struct HfTokens {
  std::optional<std::int64_t> bos;
  std::vector<std::int64_t> eos;  // any of them ends a text; empty: not known
  std::optional<std::int64_t> pad;

  friend bool operator==(const HfTokens&, const HfTokens&) = default;
};

struct HfConfig {
  ModelConfig model;  // complete
  HfTokens tokens;
};

// `path` is a config.json or the folder that has one.
HfConfig read_hf_config(const std::string& path);

// `source` names the text in messages.
HfConfig parse_hf_config(std::string_view text, const std::string& source);

// gpt2, bloom, llama or qwen2: the model_type that computes this model. A user error names what
// none of them can express. `model` is complete.
std::string hf_model_type(const ModelConfig& model);

// The text of a config.json that transformers reads as this model.
std::string hf_config_text(const ModelConfig& model, const HfTokens& tokens, DType dtype);

}  // namespace orthant
