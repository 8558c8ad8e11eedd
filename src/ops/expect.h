// Expect: what check() of an op says about its arguments. Text is built only when a check fails.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "base/check.h"
#include "mem/tensor.h"
#include "ops/step_state.h"

namespace orthant {

// The type of statistics and gradients of parameters beside activations of a type: f32, and f64
// where everything is.
inline DType wide(DType activation) {
  return activation == DType::kF64 ? DType::kF64 : DType::kF32;
}

inline bool is_float(DType type) {
  return type == DType::kF32 || type == DType::kBF16 || type == DType::kF16 || type == DType::kF64;
}

class Expect {
 public:
  enum class Role : std::uint8_t { kIn, kOut };
  // Two arguments that may be the same memory.
  struct Pair {
    const Tensor& out;
    const Tensor& in;
  };
  static constexpr int kAnyRank = -1;

  // `anchor` is the argument that the others are measured against; messages show it.
  Expect(std::string_view op, Role role, std::string_view anchor_name, const Tensor& anchor,
         int rank);
  void anchor_is_float() const;
  void anchor_is(DType dtype) const;

  void in(std::string_view name, const Tensor& tensor, const Shape& shape, DType dtype) {
    add(Role::kIn, name, tensor, shape, dtype);
  }
  void out(std::string_view name, const Tensor& tensor, const Shape& shape, DType dtype) {
    add(Role::kOut, name, tensor, shape, dtype);
  }
  void in_step_state(const Tensor& tensor) {
    add(Role::kIn, "step_state", tensor, step_state_shape(), DType::kU8);
  }
  void out_step_state(const Tensor& tensor) {
    add(Role::kOut, "step_state", tensor, step_state_shape(), DType::kU8);
  }
  // `reason` completes "x is given, but ...".
  void absent(std::string_view name, const Tensor& tensor, std::string_view reason) const;
  // Outputs overlap nothing but the pairs, and those wholly. Called last.
  void no_overlap(std::initializer_list<Pair> allowed) const;

 private:
  struct Arg {
    Role role;
    std::string_view name;
    const Tensor* tensor;
  };
  static constexpr std::size_t kMaxArgs = 10;

  void check_shared(const Arg& out, const Arg& other, std::initializer_list<Pair> allowed) const;
  void keep(Role role, std::string_view name, const Tensor& tensor);
  void add(Role role, std::string_view name, const Tensor& tensor, const Shape& shape, DType dtype);

  std::string_view op_;
  std::array<Arg, kMaxArgs> args_;  // the anchor is the first
  std::size_t num_args_ = 0;
};

// Bytes of the tensors that are present.
template <class Tensors>
double bytes_of(const Tensors& tensors) {
  std::int64_t bytes = 0;
  for (const Tensor& tensor : tensors) {
    if (tensor.present()) bytes += tensor.bytes();
  }
  return static_cast<double>(bytes);
}

// What an op reads and writes when it touches each argument once.
template <class A>
double bytes_moved(const A& a) {
  return bytes_of(a.reads()) + bytes_of(a.writes());
}

}  // namespace orthant
