// OneDnnReference: oneDNN's own product of two square matrices, what a processor is judged by.
#pragma once

#include <memory>

#include "mem/dtype.h"

namespace orthant {

// size x size, plain row-major, with oneDNN's own threads: `num_threads` of the calling thread.
class OneDnnReference {
 public:
  // f32 or bf16; bf16 becomes f32 where oneDNN has no bf16 product for this processor.
  OneDnnReference(int size, DType type, int num_threads);
  ~OneDnnReference();
  OneDnnReference(const OneDnnReference&) = delete;
  OneDnnReference& operator=(const OneDnnReference&) = delete;

  DType type() const { return type_; }
  double flops() const;  // of one run
  void run();

 private:
  struct Product;
  int size_;
  DType type_;
  int num_threads_;
  std::unique_ptr<Product> product_;
};

}  // namespace orthant
