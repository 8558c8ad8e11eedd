// The tensors of a Hugging Face file as data: name, shape, and where each element lies in the
// canonical parameters. Reading and writing both walk this list.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/model_config.h"

namespace orthant {

// A run of a canonical parameter, seen as a matrix: element first + r * cols + c of the parameter
// is element hf_first + r * row_stride + c * col_stride of the Hugging Face tensor.
struct HfPart {
  std::string param;  // canonical
  std::int64_t first = 0;
  std::int64_t rows = 1;
  std::int64_t cols = 0;
  std::int64_t hf_first = 0;
  std::int64_t row_stride = 0;
  std::int64_t col_stride = 1;

  std::int64_t count() const { return rows * cols; }
};

struct HfTensor {
  std::string name;  // with its prefix: "transformer.h.0.ln_1.weight"
  std::vector<std::int64_t> shape;
  std::vector<HfPart> parts;  // cover every element once
};

// All tensors of the model, in canonical order. `config` is complete; a user error says why
// transformers has no such model.
std::vector<HfTensor> hf_tensors(const ModelConfig& config);

// "transformer." or "model.": what the names of the base model begin with. Files saved from the
// base model leave it out.
std::string_view hf_prefix(const ModelConfig& config);

// Buffers that old versions of transformers saved beside the weights: masks and rotary tables.
bool is_hf_buffer(std::string_view name);

}  // namespace orthant
