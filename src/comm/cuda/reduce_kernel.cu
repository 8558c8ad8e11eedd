#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "comm/cuda/reduce_kernel.h"
#include "mem/cuda_check.h"

namespace orthant {
namespace {

constexpr int kMostRanks = 64;
constexpr int kThreads = 256;
constexpr std::uintptr_t kPackBytes = 16;

struct Runs {
  const void* inputs[kMostRanks];
  void* outputs[kMostRanks];
  int num_inputs;
  int num_outputs;
};

// How an element is stored, and in what it is added.
template <class T>
__device__ inline T widen(T value) {
  return value;
}
__device__ inline float widen(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
__device__ inline float widen(__half value) {
  return __half2float(value);
}
template <class T, class Wide>
__device__ inline T narrow(Wide value) {
  return value;
}
template <>
__device__ inline __nv_bfloat16 narrow<__nv_bfloat16, float>(float value) {
  return __float2bfloat16_rn(value);
}
template <>
__device__ inline __half narrow<__half, float>(float value) {
  return __float2half_rn(value);
}

template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T values[kCount];
};

// kCount neighbours a thread, from element `first` on.
template <class T, int kCount>
__global__ void reduce_kernel(Runs runs, bool takes_max, std::int64_t first,
                              std::int64_t num_packs) {
  using Packed = Pack<T, kCount>;
  using Wide = decltype(widen(T()));
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= num_packs) return;
  const auto load = [&](int rank) {
    return reinterpret_cast<const Packed*>(static_cast<const T*>(runs.inputs[rank]) + first)[at];
  };
  Wide sum[kCount];
  const Packed head = load(0);
  for (int i = 0; i < kCount; ++i) {
    sum[i] = widen(head.values[i]);
  }
  for (int rank = 1; rank < runs.num_inputs; ++rank) {
    const Packed more = load(rank);
    for (int i = 0; i < kCount; ++i) {
      const Wide next = widen(more.values[i]);
      sum[i] = takes_max ? (sum[i] < next ? next : sum[i]) : sum[i] + next;
    }
  }
  Packed result;
  for (int i = 0; i < kCount; ++i) {
    result.values[i] = narrow<T, Wide>(sum[i]);
  }
  for (int rank = 0; rank < runs.num_outputs; ++rank) {
    reinterpret_cast<Packed*>(static_cast<T*>(runs.outputs[rank]) + first)[at] = result;
  }
}

template <class T, int kCount>
void launch(cudaStream_t stream, const Runs& runs, Reduce reduce, std::int64_t first,
            std::int64_t num_packs) {
  if (num_packs == 0) return;
  const auto blocks = static_cast<unsigned>((num_packs + kThreads - 1) / kThreads);
  reduce_kernel<T, kCount>
      <<<blocks, kThreads, 0, stream>>>(runs, reduce == Reduce::kMax, first, num_packs);
  ORTHANT_CUDA(cudaGetLastError());
}

// Whole packs, then what is left.
template <class T>
void reduce_typed(cudaStream_t stream, const Runs& runs, bool is_aligned, Reduce reduce,
                  std::int64_t count) {
  constexpr int kCount = static_cast<int>(kPackBytes / sizeof(T));
  const std::int64_t num_packs = is_aligned ? count / kCount : 0;
  launch<T, kCount>(stream, runs, reduce, 0, num_packs);
  launch<T, 1>(stream, runs, reduce, num_packs * kCount, count - num_packs * kCount);
}

}  // namespace

void reduce_on_gpu(cudaStream_t stream, DType dtype, Reduce reduce,
                   std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
                   std::int64_t count) {
  ORTHANT_CHECK(inputs.size() <= kMostRanks, "{} ranks meet on GPUs; {} are the most",
                inputs.size(), kMostRanks);
  Runs runs{.num_inputs = static_cast<int>(inputs.size()),
            .num_outputs = static_cast<int>(outputs.size())};
  std::uintptr_t bits = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    runs.inputs[i] = inputs[i];
    bits |= reinterpret_cast<std::uintptr_t>(inputs[i]);
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    runs.outputs[i] = outputs[i];
    bits |= reinterpret_cast<std::uintptr_t>(outputs[i]);
  }
  const bool is_aligned = bits % kPackBytes == 0;
  switch (dtype) {
    case DType::kF32: return reduce_typed<float>(stream, runs, is_aligned, reduce, count);
    case DType::kF64: return reduce_typed<double>(stream, runs, is_aligned, reduce, count);
    case DType::kI64: return reduce_typed<long long>(stream, runs, is_aligned, reduce, count);
    case DType::kBF16: return reduce_typed<__nv_bfloat16>(stream, runs, is_aligned, reduce, count);
    case DType::kF16: return reduce_typed<__half>(stream, runs, is_aligned, reduce, count);
    default: ORTHANT_CHECK(false, "there is no reduction of {} over ranks", name_of(dtype));
  }
}

}  // namespace orthant
