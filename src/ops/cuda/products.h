// Products: matrix products by cuBLASLt in row-major terms. A problem's algorithm is chosen once:
// the first of the heuristics where that adds partial products, else the fastest of those that do
// not. Those of few rows may differ in a last bit, so that where bits count the first is taken.
#pragma once

#include <cstdint>
#include <memory>

#include <cuda_runtime_api.h>

#include "mem/tensor.h"
#include "ops/algorithms.h"

namespace orthant::cuda {

// d [m,n] (=, +=) a b + bias, where a is [m,k] or its transpose and b is [k,n] or its transpose.
// With GELU d = GELU(gelu_x) where gelu_x = a b + bias, or d = (a b) GELU'(gelu_x).
struct Product {
  Tensor d;
  Tensor a;
  Tensor b;
  Tensor bias;  // [n], the type of d; may be absent
  ProductGelu gelu = ProductGelu::kNone;
  Tensor gelu_x = {};  // [m,n], the type of d; absent without GELU
  bool transposes_a = false;
  bool transposes_b = false;
  bool adds = false;  // to d
};

class Products {
 public:
  // `is_deterministic`: a problem has one algorithm in all processes, and wherever its matrices lie
  // at multiples of 16 bytes. Else what others have timed is taken from `algorithms`, and what is
  // timed here goes there; null: there are none.
  Products(cudaStream_t stream, bool is_deterministic, Algorithms* algorithms);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  // Queues it. `workspace` is kProductBytes and belongs to the product until it has run.
  void run(const Product& product, const Tensor& workspace);
  // The same of one with GELU. False: it is not made, since bits count, or the library has no
  // algorithm, as for f32, and for rows of gelu_x that do not begin at multiples of 16 bytes.
  [[nodiscard]] bool run_with_gelu(const Product& product, const Tensor& workspace);

  std::int64_t num_timed() const;  // problems, so far

 private:
  struct Library;
  struct Plan;
  std::unique_ptr<Library> library_;
};

}  // namespace orthant::cuda
