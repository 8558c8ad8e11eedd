// ORTHANT_CUDA: what the CUDA runtime answered, as an error that says what was asked.
#pragma once

#include <cuda_runtime_api.h>

#include "base/check.h"

namespace orthant {

inline void check_cuda(cudaError_t status, const char* asked) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // or the next launch would say it of itself
  fail_run("cuda: {}: {} ({})", asked, cudaGetErrorString(status), cudaGetErrorName(status));
}

}  // namespace orthant

#define ORTHANT_CUDA(call) ::orthant::check_cuda((call), #call)
