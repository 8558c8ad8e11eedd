// CpuOps: the class behind make_cpu_ops, compiled once for each level of processor. What is
// compiled for AVX-512 must not define a function that others could be linked to: so its files use
// no templates and inline functions of others that are too large to vanish.
#pragma once

#include <memory>

#include "ops/cpu/vector.h"
#include "ops/cpu/workshop.h"
#include "ops/ops.h"

namespace orthant::cpu::ORTHANT_LEVEL {

class CpuOps : public Ops {
 public:
  CpuOps(const OpsParts& parts, std::unique_ptr<Workshop> workshop);

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

  int num_threads() const { return num_threads_; }
  float* scratch(int thread) { return workshop_->scratch(thread); }

 private:
  void multiply(const LinearFwd& a);
  int num_threads_;
  std::unique_ptr<Workshop> workshop_;
};

// Calls f with a value of the element type: what the kernels of an op are instantiated for.
template <class F>
inline void with_type(DType type, std::string_view op, F&& f) {
  switch (type) {
    case DType::kF32: return f(float{});
    case DType::kBF16: return f(BFloat16{});
    case DType::kF16: return f(Half{});
    default: refuse_type(op, type);
  }
}

}  // namespace orthant::cpu::ORTHANT_LEVEL
