#include "ops/ref/doubles.h"

#include "base/check.h"

namespace orthant {
namespace {

[[noreturn]] void refuse(DType type) {
  fail_run("ref ops: a tensor is {}; the ref backend computes f32, bf16 and f64", name_of(type));
}

double rounded(double value, DType type) {
  switch (type) {
    case DType::kF64: return value;
    case DType::kF32: return static_cast<float>(value);
    case DType::kBF16: return static_cast<float>(BFloat16(static_cast<float>(value)));
    default: refuse(type);
  }
}

}  // namespace

Doubles::Doubles(const Tensor& tensor) {
  if (tensor.absent()) return;
  values_.resize(static_cast<std::size_t>(tensor.count()));
  for (std::size_t i = 0; i < values_.size(); ++i) {
    switch (tensor.dtype) {
      case DType::kF64: values_[i] = tensor.ptr<const double>()[i]; break;
      case DType::kF32: values_[i] = tensor.ptr<const float>()[i]; break;
      case DType::kBF16: values_[i] = static_cast<float>(tensor.ptr<const BFloat16>()[i]); break;
      default: refuse(tensor.dtype);
    }
  }
}

void Doubles::store(const Tensor& tensor) const {
  if (tensor.absent()) return;
  ORTHANT_CHECK(count() == tensor.count(), "ref ops: {} values for a tensor {}", count(),
                tensor.shape.text());
  for (std::size_t i = 0; i < values_.size(); ++i) {
    switch (tensor.dtype) {
      case DType::kF64: tensor.ptr<double>()[i] = values_[i]; break;
      case DType::kF32: tensor.ptr<float>()[i] = static_cast<float>(values_[i]); break;
      case DType::kBF16:
        tensor.ptr<BFloat16>()[i] = BFloat16(static_cast<float>(values_[i]));
        break;
      default: refuse(tensor.dtype);
    }
  }
}

void Doubles::round_to(DType type) {
  for (double& value : values_) {
    value = rounded(value, type);
  }
}

}  // namespace orthant
