// What cuDNN makes dropout's masks of attention from.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "ops/attention.h"

namespace orthant::cuda {

// cuDNN's masks are a function of both and of an element's place in [B,H,S,S].
struct AttentionSeed {
  std::int64_t seed;
  alignas(16) std::int64_t offset;  // as every tensor of a graph lies
};

// Queues what writes it to memory of the GPU: 64 random bits of the step, the site, the first
// sample and the first head, so that two calls of a run have the same by a rare chance alone;
// offset 0. Forward and backward of a micro-batch, again or on another stage, have one; other
// micro-batch sizes or tp have others.
void write_attention_seed(cudaStream_t stream, const AttentionShape& n, const Tensor& sample_ids,
                          const Tensor& step_state, AttentionSeed* seed);

}  // namespace orthant::cuda
