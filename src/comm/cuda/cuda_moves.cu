#include <array>

#include "comm/cuda/cuda_moves.h"
#include "comm/cuda/reduce_kernel.h"
#include "mem/cuda_check.h"

namespace orthant {
namespace {

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
    reduce_on_gpu(stream_, dtype, reduce, inputs, outputs, count);
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
