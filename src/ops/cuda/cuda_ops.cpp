#include "ops/cuda/cuda_ops.h"

#include "ops/cuda/backend.h"

namespace orthant {
namespace cuda {

CudaOps::CudaOps(const OpsParts& parts)
    : Ops(parts.ledger, parts.in_flight, parts.work, parts.target),
      stream_(static_cast<cudaStream_t>(parts.queue)),
      products_(stream_, parts.target == Target::kCudaDeterministic, parts.algorithms),
      attention_(stream_, parts.target) {}

}  // namespace cuda

std::unique_ptr<Ops> make_cuda_ops(const OpsParts& parts) {
  ORTHANT_CHECK(parts.queue != nullptr && parts.target != Target::kHost,
                "ops 'cuda' are built on a device without a queue, or for another target");
  return std::make_unique<cuda::CudaOps>(parts);
}

}  // namespace orthant
