// StateReader: state of a rank as f32 in memory of the host, a run of elements at a time. Masters
// that are split are joined. Not part of a step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "params/param_store.h"

namespace orthant {

class StateReader {
 public:
  // Reads at most `most` elements at once.
  StateReader(Device& device, std::int64_t most);

  // Each stays valid until the next call.
  std::span<const float> values(Device& home, const Tensor& tensor);
  // Elements first .. first+count-1 of the weight.
  std::span<const float> weights(const ParamStore::Owned& owned, std::int64_t first,
                                 std::int64_t count);

 private:
  Device& device_;
  std::vector<float> values_;
  std::vector<std::int16_t> remainders_;
};

// The elements of a tensor that is f32, bf16 or f16, as f32.
void read_back(Device& device, std::span<float> into, const Tensor& from);

}  // namespace orthant
