// Matrix products in f32 on AVX2: blocks packed into cache, register tiles of 6 x 16. An element of
// c is the sum of its products in a fixed order (chunks of kDepth, in order, one fma each),
// whatever tile or thread it falls to: so its bits do not depend on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "mem/dtype.h"

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

// Owns the packed blocks; nothing is allocated after construction.
class Gemm {
 public:
  explicit Gemm(int num_threads);
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;
  void run(const Product& product);

 private:
  struct Buffers;
  int num_threads_;
  std::unique_ptr<Buffers> buffers_;
};

}  // namespace orthant::cpu
