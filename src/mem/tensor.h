// Tensor: a view of contiguous memory. It owns nothing; passing it by value copies no data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mem/dtype.h"
#include "mem/shape.h"

namespace orthant {

struct Tensor {
  std::byte* data = nullptr;
  Shape shape;
  DType dtype = DType::kF32;

  // A default Tensor stands for "absent": an op's optional argument that was not given.
  bool absent() const { return data == nullptr; }
  bool present() const { return data != nullptr; }
  std::int64_t count() const { return shape.count(); }
  std::int64_t bytes() const { return shape.count() * size_of(dtype); }

  Tensor rows(std::int64_t first, std::int64_t num_rows) const;  // a part along dimension 0
  Tensor flat(std::int64_t first,
              std::int64_t num_elements) const;  // a run of elements as one dimension
  Tensor as(Shape other) const;                  // the same elements with another shape

  template <class T>
  T* ptr() const {
    return reinterpret_cast<T*>(data);
  }
};

}  // namespace orthant
