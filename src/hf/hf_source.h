// HfSource: the weights of a Hugging Face folder as canonical parameters.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "ckpt/safetensors_folder.h"
#include "hf/hf_names.h"
#include "params/param_source.h"

namespace orthant {

class HfSource final : public ParamSource {
 public:
  // Checks at once that the folder has every tensor of the model, in its shape and in F32, BF16 or
  // F16, and no other. `config` is complete.
  HfSource(const ModelConfig& config, const std::string& folder);

  // Weights; the moments of weights without an optimizer are 0.
  void read(const ParamSpec& param, StateKind state, std::int64_t first,
            std::span<float> into) const override;

 private:
  struct Stored {
    HfPart part;
    std::span<const std::byte> data;  // of the whole Hugging Face tensor
    DType dtype;
  };

  void add_tensor(const HfTensor& tensor, const SafetensorsFolder::Found& found);
  void check_others(const ModelConfig& config, const std::vector<HfTensor>& tensors,
                    std::string_view stripped) const;

  SafetensorsFolder folder_;
  std::unordered_map<std::string, std::vector<Stored>> params_;  // parts by ascending first
};

}  // namespace orthant
