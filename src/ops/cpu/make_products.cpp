#include "ops/cpu/gemm.h"
#include "ops/cpu/onednn.h"
#include "ops/cpu/onednn_products.h"

namespace orthant::cpu {
namespace {

// One kind of products for bf16, another for the other types.
class ByType final : public Products {
 public:
  ByType(std::unique_ptr<Products> bf16, std::unique_ptr<Products> others)
      : bf16_(std::move(bf16)),
        others_(std::move(others)) {}
  void run(const Product& product) override {
    (product.a.dtype == DType::kBF16 ? *bf16_ : *others_).run(product);
  }

 private:
  std::unique_ptr<Products> bf16_;
  std::unique_ptr<Products> others_;
};

}  // namespace

std::unique_ptr<Products> make_products(CpuLevel level, int num_threads) {
  if (level == CpuLevel::kAvx2) return std::make_unique<Gemm>(avx2::gemm_form(), num_threads);
  auto onednn = std::make_unique<OneDnnProducts>(num_threads);
  if (level == CpuLevel::kAvx512) return onednn;
  return std::make_unique<ByType>(std::make_unique<Gemm>(amx::gemm_form(), num_threads),
                                  std::move(onednn));
}

}  // namespace orthant::cpu
