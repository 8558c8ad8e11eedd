// Products: matrix products of the cpu backend, by oneDNN or by our own code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "mem/dtype.h"
#include "ops/processor.h"

namespace orthant::cpu {

// Element (i, j) is data[i * stride + j], or data[j * stride + i] when transposed. f32, bf16 or
// f16.
struct Matrix {
  const std::byte* data;
  DType dtype;
  std::int64_t stride;
  bool transposed;
};

enum class Into : std::uint8_t { kSet, kAdd };

// c (=, +=) a b + bias. c has rows of `stride` elements; f32, or another type with kSet (rounded
// once).
struct Product {
  std::int64_t M;
  std::int64_t N;
  std::int64_t K;
  Matrix a;  // [M,K]
  Matrix b;  // [K,N]
  std::byte* c;
  DType c_type;
  std::int64_t c_stride;
  const std::byte* bias;  // [N] of the type of b, or null; only with kSet
  Into into;
};

class Products {
 public:
  virtual ~Products() = default;
  // The bits do not depend on the number of threads.
  virtual void run(const Product& product) = 0;
};

// Our own on AVX2, and on AMX for bf16, where they were measured to be faster than oneDNN at its
// best; else oneDNN's.
std::unique_ptr<Products> make_products(CpuLevel level, int num_threads);

}  // namespace orthant::cpu
