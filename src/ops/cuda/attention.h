// FusedAttention: attention by cuDNN's fused kernels, for the shapes that is_fused() names.
#pragma once

#include <memory>

#include <cuda_runtime_api.h>

#include "ops/attention.h"
#include "ops/workspace.h"

namespace orthant::cuda {

class FusedAttention {
 public:
  // cuDNN is first asked when it is first needed: a plan of each shape is built then.
  FusedAttention(cudaStream_t stream, Target target);
  ~FusedAttention();
  FusedAttention(const FusedAttention&) = delete;
  FusedAttention& operator=(const FusedAttention&) = delete;

  template <class Op>
  bool has(const Op& a) const {
    return is_fused(a, target_);
  }
  // Workspaces are kFusedFwdBytes and fused_bwd_bytes().
  void forward(const AttentionFwd& a, const Tensor& workspace);
  // The gradients may lie where queries, keys and values lie.
  void backward(const AttentionBwd& a, const Tensor& workspace);

 private:
  struct Library;
  Library& library();

  cudaStream_t stream_;
  Target target_;
  std::unique_ptr<Library> library_;
};

}  // namespace orthant::cuda
