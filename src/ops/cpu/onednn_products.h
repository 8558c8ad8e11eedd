// OneDnnProducts: matrix products by oneDNN. The result is cut into fixed tiles, each the work of
// one thread over the whole inner dimension: so the number of threads changes no bit.
#pragma once

#include <memory>

#include "ops/cpu/products.h"

namespace orthant::cpu {

// What a thread needs for a shape is allocated at the first product of that shape.
class OneDnnProducts final : public Products {
 public:
  explicit OneDnnProducts(int num_threads);
  ~OneDnnProducts() override;
  OneDnnProducts(const OneDnnProducts&) = delete;
  OneDnnProducts& operator=(const OneDnnProducts&) = delete;
  void run(const Product& product) override;

 private:
  struct State;
  int num_threads_;
  std::unique_ptr<State> state_;
};

}  // namespace orthant::cpu
