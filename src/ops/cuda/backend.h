// CudaOps: the class behind make_cuda_ops. After the first step nothing allocates.
#pragma once

#include <memory>

#include <cuda_runtime_api.h>

#include "mem/cuda_check.h"
#include "ops/cuda/attention.h"
#include "ops/cuda/products.h"
#include "ops/ops.h"

namespace orthant::cuda {

class CudaOps final : public Ops {
 public:
  explicit CudaOps(const OpsParts& parts);

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
  cudaStream_t stream_;
  Products products_;
  FusedAttention attention_;
};

}  // namespace orthant::cuda
