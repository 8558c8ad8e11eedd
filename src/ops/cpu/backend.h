// CpuOps: the class behind make_cpu_ops. It owns what its threads need between calls; the first
// product of a shape may allocate, nothing else does after construction.
#pragma once

#include <memory>
#include <vector>

#include "base/check.h"
#include "ops/cpu/products.h"
#include "ops/cpu/vector.h"
#include "ops/ops.h"

namespace orthant::cpu {

class CpuOps final : public Ops {
 public:
  explicit CpuOps(const OpsParts& parts);

 protected:
  void exec(const LinearFwd& a, const Tensor& workspace) override;
  void exec(const LinearBwdInput& a, const Tensor& workspace) override;
  void exec(const LinearBwdWeight& a, const Tensor& workspace) override;
  void exec(const NormFwd& a, const Tensor& workspace) override;
  void exec(const NormBwd& a, const Tensor& workspace) override;
  void exec(const AttentionFwd& a, const Tensor& workspace) override;
  void exec(const AttentionBwd& a, const Tensor& workspace) override;
  void exec(const AttentionCached& a, const Tensor& workspace) override;
  void exec(const Rotary& a, const Tensor& workspace) override;
  void exec(const GeluFwd& a, const Tensor& workspace) override;
  void exec(const GeluBwd& a, const Tensor& workspace) override;
  void exec(const SwigluFwd& a, const Tensor& workspace) override;
  void exec(const SwigluBwd& a, const Tensor& workspace) override;
  void exec(const EmbeddingFwd& a, const Tensor& workspace) override;
  void exec(const EmbeddingBwd& a, const Tensor& workspace) override;
  void exec(const SoftmaxPart& a, const Tensor& workspace) override;
  void exec(const CrossEntropyFwd& a, const Tensor& workspace) override;
  void exec(const CrossEntropyBwd& a, const Tensor& workspace) override;
  void exec(const Add& a, const Tensor& workspace) override;
  void exec(const Accumulate& a, const Tensor& workspace) override;
  void exec(const Copy& a, const Tensor& workspace) override;
  void exec(const Zero& a, const Tensor& workspace) override;
  void exec(const Dropout& a, const Tensor& workspace) override;
  void exec(const CountNonFinite& a, const Tensor& workspace) override;
  void exec(const SquaredNorm& a, const Tensor& workspace) override;
  void exec(const ClipFactor& a, const Tensor& workspace) override;
  void exec(const AdamW& a, const Tensor& workspace) override;

 private:
  int num_threads_;
  std::unique_ptr<Products> products_;
  std::vector<AlignedFloats> scratch_;  // one for each thread
};

// Calls f with a value of the element type: what the kernels of an op are instantiated for.
template <class F>
inline void with_type(DType type, std::string_view op, F&& f) {
  switch (type) {
    case DType::kF32: return f(float{});
    case DType::kBF16: return f(BFloat16{});
    case DType::kF16: return f(Half{});
    default: break;
  }
  ORTHANT_CHECK(false, "{}: the cpu backend has no kernel for {}; use f32, bf16 or f16", op,
                name_of(type));
}

}  // namespace orthant::cpu
