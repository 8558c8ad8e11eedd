// ParamSource: where values of parameters come from: a seed, a checkpoint, a Hugging Face folder.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "params/param.h"

namespace orthant {

// The f32 tensors of the state of one parameter.
enum class StateKind : std::uint8_t { kWeight, kExpAvg, kExpAvgSq };

class ParamSource {
 public:
  virtual ~ParamSource() = default;
  // Elements first..first+into.size()-1 of the flattened logical tensor. May be called from several
  // threads.
  virtual void read(const ParamSpec& param, StateKind state, std::int64_t first,
                    std::span<float> into) const = 0;
  // Reads one of `parts` parts of the weights, or of the whole state, and throws a user error where
  // it is not what was written. A source without checksums has nothing to compare.
  struct Verify {
    int part = 0;
    int parts = 1;
    bool has_moments = false;
  };
  virtual void verify(const Verify& /*what*/) const {}
};

// Initial weights: a pure function of (seed, name, element); moments are 0.
class InitSource final : public ParamSource {
 public:
  explicit InitSource(std::uint64_t seed) : seed_(seed) {}
  void read(const ParamSpec& param, StateKind state, std::int64_t first,
            std::span<float> into) const override;

 private:
  std::uint64_t seed_;
};

}  // namespace orthant
