// Sums over ranks on a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <cuda_runtime_api.h>

#include "comm/call.h"

namespace orthant {

// As reduce_in_rank_order, with the same bits, of memory that the GPU reaches: an output may be an
// input. Queued on the stream.
void reduce_on_gpu(cudaStream_t stream, DType dtype, Reduce reduce,
                   std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
                   std::int64_t count);

}  // namespace orthant
