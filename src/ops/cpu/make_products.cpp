#include "ops/cpu/gemm.h"
#include "ops/cpu/onednn.h"
#include "ops/cpu/onednn_products.h"

namespace orthant::cpu {

std::unique_ptr<Products> make_products(int num_threads) {
  if (onednn_has(dnnl::cpu_isa::avx512_core)) return std::make_unique<OneDnnProducts>(num_threads);
  return std::make_unique<Gemm>(num_threads);
}

}  // namespace orthant::cpu
