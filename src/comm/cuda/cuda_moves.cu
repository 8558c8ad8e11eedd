#include <array>

#include <cuda_bf16.h>

#include "comm/cuda/cuda_moves.h"
#include "mem/cuda_check.h"

namespace orthant {
namespace {

constexpr int kMostRanks = 64;

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
template <class T, class Wide>
__device__ inline T narrow(Wide value) {
  if constexpr (sizeof(T) < sizeof(Wide)) {
    return __float2bfloat16_rn(value);
  } else {
    return value;
  }
}

template <class T>
__global__ void reduce_kernel(Runs runs, bool takes_max, std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  auto sum = widen(static_cast<const T*>(runs.inputs[0])[i]);
  for (int rank = 1; rank < runs.num_inputs; ++rank) {
    const auto next = widen(static_cast<const T*>(runs.inputs[rank])[i]);
    sum = takes_max ? (sum < next ? next : sum) : sum + next;
  }
  const T result = narrow<T>(sum);
  for (int rank = 0; rank < runs.num_outputs; ++rank) {
    static_cast<T*>(runs.outputs[rank])[i] = result;
  }
}

class CudaMoves final : public DeviceMoves {
 public:
  explicit CudaMoves(cudaStream_t stream) : stream_(stream) {
    for (cudaEvent_t& event : events_) {
      ORTHANT_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    }
  }
  ~CudaMoves() override {
    for (const cudaEvent_t event : events_) {
      cudaEventDestroy(event);
    }
  }

  void* mark() override {
    const cudaEvent_t event = events_[next_];
    next_ = (next_ + 1) % events_.size();
    ORTHANT_CUDA(cudaEventRecord(event, stream_));
    return event;
  }
  void wait_for(void* point) override {
    ORTHANT_CUDA(cudaStreamWaitEvent(stream_, static_cast<cudaEvent_t>(point), 0));
  }
  void copy(std::byte* to, const std::byte* from, std::int64_t bytes) override {
    if (to == from || bytes == 0) return;
    ORTHANT_CUDA(
        cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, stream_));
  }
  void reduce(DType dtype, Reduce reduce, std::span<const std::byte* const> inputs,
              std::span<std::byte* const> outputs, std::int64_t count) override {
    ORTHANT_CHECK(inputs.size() <= kMostRanks, "{} ranks meet on GPUs; {} are the most",
                  inputs.size(), kMostRanks);
    if (count == 0) return;
    Runs runs{.num_inputs = static_cast<int>(inputs.size()),
              .num_outputs = static_cast<int>(outputs.size())};
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      runs.inputs[i] = inputs[i];
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      runs.outputs[i] = outputs[i];
    }
    constexpr int kThreads = 256;
    const auto blocks = static_cast<unsigned>((count + kThreads - 1) / kThreads);
    const bool max = reduce == Reduce::kMax;
    switch (dtype) {
      case DType::kF32:
        reduce_kernel<float><<<blocks, kThreads, 0, stream_>>>(runs, max, count);
        break;
      case DType::kF64:
        reduce_kernel<double><<<blocks, kThreads, 0, stream_>>>(runs, max, count);
        break;
      case DType::kI64:
        reduce_kernel<long long><<<blocks, kThreads, 0, stream_>>>(runs, max, count);
        break;
      case DType::kBF16:
        reduce_kernel<__nv_bfloat16><<<blocks, kThreads, 0, stream_>>>(runs, max, count);
        break;
      default: ORTHANT_CHECK(false, "there is no reduction of {} over ranks", name_of(dtype));
    }
    ORTHANT_CUDA(cudaGetLastError());
  }

 private:
  // A point is waited for, at the latest, when as many later calls have been posted.
  static constexpr std::size_t kNumPoints = 256;
  cudaStream_t stream_;
  std::array<cudaEvent_t, kNumPoints> events_{};
  std::size_t next_ = 0;
};

}  // namespace

std::unique_ptr<DeviceMoves> make_cuda_moves(void* queue) {
  return std::make_unique<CudaMoves>(static_cast<cudaStream_t>(queue));
}

}  // namespace orthant
