// Writing parameters under Hugging Face's names. Memory is bounded by one block of one parameter.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "hf/hf_config.h"
#include "mem/dtype.h"
#include "params/param_source.h"

namespace orthant {

// A folder that transformers loads: config.json and model.safetensors, or several files and their
// index above `max_file_bytes`. It is built beside `folder` and renamed, so that readers see all or
// nothing; a folder that holds something is refused. `params` are the parameters of the whole
// model; `source` is asked for their weights.
struct HfFolder {
  std::string folder;
  ModelConfig model;  // complete
  HfTokens tokens;
  DType dtype = DType::kF32;                    // f32 or bf16
  std::int64_t max_file_bytes = 5'000'000'000;  // transformers' own limit
};
void write_hf_folder(const HfFolder& to, const ParamSource& source,
                     std::span<const ParamSpec> params);

// One safetensors file of whatever `source` gives as the weights of `params`, such as gradients.
// Each name is `prefix` and Hugging Face's name. Written beside `path` and renamed.
struct HfTensorFile {
  std::string path;
  ModelConfig model;  // complete
  std::string prefix;
  DType dtype = DType::kF32;  // f32 or bf16
};
void write_hf_tensors(const HfTensorFile& to, const ParamSource& source,
                      std::span<const ParamSpec> params);

}  // namespace orthant
