// Matrix products in f32 on AVX2: blocks packed into cache, register tiles of 6 x 16. An element of
// c is the sum of its products in a fixed order (chunks of kDepth, in order, one fma each),
// whatever tile or thread it falls to: so its bits do not depend on the number of threads.
#pragma once

#include <memory>

#include "ops/cpu/products.h"

namespace orthant::cpu {

// Owns the packed blocks; nothing is allocated after construction.
class Gemm final : public Products {
 public:
  explicit Gemm(int num_threads);
  ~Gemm() override;
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;
  void run(const Product& product) override;

 private:
  struct Buffers;
  int num_threads_;
  std::unique_ptr<Buffers> buffers_;
};

}  // namespace orthant::cpu
