#include "mem/tensor.h"

#include <fmt/format.h>

#include "base/check.h"

namespace orthant {

std::int64_t size_of(DType type) {
  switch (type) {
    case DType::kF32:
    case DType::kI32: return 4;
    case DType::kBF16:
    case DType::kF16:
    case DType::kI16: return 2;
    case DType::kF64:
    case DType::kI64: return 8;
    case DType::kU8: return 1;
  }
  return 0;
}

std::string_view name_of(DType type) {
  switch (type) {
    case DType::kF32: return "f32";
    case DType::kBF16: return "bf16";
    case DType::kF16: return "f16";
    case DType::kF64: return "f64";
    case DType::kI16: return "i16";
    case DType::kI32: return "i32";
    case DType::kI64: return "i64";
    case DType::kU8: return "u8";
  }
  return "?";
}

Shape::Shape(std::initializer_list<std::int64_t> dims)
    : Shape(std::span(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const std::int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  ORTHANT_CHECK(dims.size() <= kMaxRank, "a shape has at most {} dimensions, {} were given",
                kMaxRank, dims.size());
  for (std::size_t i = 0; i < dims.size(); ++i) {
    ORTHANT_CHECK(dims[i] >= 0, "dimension {} of a shape is {}", i, dims[i]);
    dims_[i] = dims[i];
  }
}

std::int64_t Shape::operator[](int i) const {
  const int at = i < 0 ? rank_ + i : i;
  ORTHANT_CHECK(at >= 0 && at < rank_, "dimension {} of shape {} does not exist", i, text());
  return dims_[static_cast<std::size_t>(at)];
}

std::int64_t Shape::count() const {
  std::int64_t product = 1;
  for (int i = 0; i < rank_; ++i) {
    product *= dims_[static_cast<std::size_t>(i)];
  }
  return product;
}

Shape Shape::with(int dim, std::int64_t extent) const {
  Shape changed = *this;
  ORTHANT_CHECK(dim >= 0 && dim < rank_, "dimension {} of shape {} does not exist", dim, text());
  changed.dims_[static_cast<std::size_t>(dim)] = extent;
  return changed;
}

std::string Shape::text() const {
  return fmt::format("[{}]", fmt::join(dims_.begin(), dims_.begin() + rank_, ","));
}

Tensor Tensor::rows(std::int64_t first, std::int64_t num_rows) const {
  ORTHANT_CHECK(shape.rank() > 0 && first >= 0 && num_rows >= 0 && first + num_rows <= shape[0],
                "rows {}..{} of tensor {} do not exist", first, first + num_rows, shape.text());
  const std::int64_t row_bytes = shape[0] == 0 ? 0 : bytes() / shape[0];
  return {.data = data + first * row_bytes, .shape = shape.with(0, num_rows), .dtype = dtype};
}

Tensor Tensor::flat(std::int64_t first, std::int64_t num_elements) const {
  ORTHANT_CHECK(first >= 0 && num_elements >= 0 && first + num_elements <= count(),
                "elements {}..{} of tensor {} do not exist", first, first + num_elements,
                shape.text());
  return {.data = data + first * size_of(dtype), .shape = {num_elements}, .dtype = dtype};
}

Tensor Tensor::as(Shape other) const {
  ORTHANT_CHECK(other.count() == count(), "tensor {} cannot be seen as {}", shape.text(),
                other.text());
  return {.data = data, .shape = other, .dtype = dtype};
}

}  // namespace orthant
