// Tensors as vectors of doubles: what the ref backend computes with. Loads come before stores, so
// an output may be an input's memory.
#pragma once

#include <cstdint>
#include <vector>

#include "mem/tensor.h"
#include "ops/step_state.h"

namespace orthant {

// Elements of a tensor. Indices are std::int64_t, as shapes are.
class Doubles {
 public:
  Doubles() = default;
  explicit Doubles(std::int64_t count) : values_(static_cast<std::size_t>(count)) {}
  explicit Doubles(const Tensor& tensor);  // f32, bf16, f64; an absent tensor has no elements

  bool empty() const { return values_.empty(); }
  std::int64_t count() const { return static_cast<std::int64_t>(values_.size()); }
  double& operator[](std::int64_t i) { return values_[static_cast<std::size_t>(i)]; }
  double operator[](std::int64_t i) const { return values_[static_cast<std::size_t>(i)]; }

  // Rounds each element to the tensor's type; nothing when the tensor is absent.
  void store(const Tensor& tensor) const;
  void round_to(DType type);

 private:
  std::vector<double> values_;
};

inline StepState& step_state_of(const Tensor& tensor) {
  return *tensor.ptr<StepState>();
}

}  // namespace orthant
