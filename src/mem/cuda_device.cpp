// One cudaMalloc an arena. What comes from the host passes through page-locked blocks, so that the
// host never waits for the GPU: a block is used again when its last copy has run.
#include "mem/cuda_device.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/text.h"
#include "mem/cuda_check.h"
#include "mem/cuda_lanes.h"
#include "mem/cuda_pinned.h"

namespace orthant {
namespace {

// A page-locked block and the end of the last copy out of it.
class Block {
 public:
  static constexpr std::int64_t kBytes = std::int64_t{1} << 20;

  Block() {
    void* data = nullptr;
    ORTHANT_CUDA(cudaHostAlloc(&data, kBytes, cudaHostAllocDefault));
    data_ = static_cast<std::byte*>(data);
  }
  ~Block() { cudaFreeHost(data_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  std::byte* data() const { return data_; }
  void close(cudaStream_t stream) { ORTHANT_CUDA(cudaEventRecord(done_.get(), stream)); }
  void open() {
    ORTHANT_CUDA(cudaEventSynchronize(done_.get()));
    used_ = 0;
  }
  std::int64_t free_bytes() const { return kBytes - used_; }
  std::byte* take(std::int64_t bytes) {
    std::byte* const at = data_ + used_;
    used_ = std::min(kBytes, (used_ + bytes + kAlign - 1) / kAlign * kAlign);
    return at;
  }

 private:
  static constexpr std::int64_t kAlign = 64;
  std::byte* data_ = nullptr;
  CudaEvent done_;
  std::int64_t used_ = 0;
};

class StreamTimer final : public QueueTimer {
 public:
  explicit StreamTimer(cudaStream_t stream) : stream_(stream) {}
  StreamTimer(const StreamTimer&) = delete;
  StreamTimer& operator=(const StreamTimer&) = delete;
  ~StreamTimer() override {
    for (const cudaEvent_t event : events_) {
      cudaEventDestroy(event);
    }
  }
  int mark() override {
    if (num_marks_ == events_.size()) {
      cudaEvent_t event = nullptr;
      ORTHANT_CUDA(cudaEventCreate(&event));
      events_.push_back(event);
    }
    ORTHANT_CUDA(cudaEventRecord(events_[num_marks_], stream_));
    return static_cast<int>(num_marks_++);
  }
  double seconds_between(int first, int second) override {
    const cudaEvent_t end = events_.at(static_cast<std::size_t>(second));
    ORTHANT_CUDA(cudaEventSynchronize(end));
    float ms = 0;
    ORTHANT_CUDA(cudaEventElapsedTime(&ms, events_.at(static_cast<std::size_t>(first)), end));
    return static_cast<double>(ms) * 1e-3;
  }
  void forget() override { num_marks_ = 0; }

 private:
  cudaStream_t stream_;
  std::vector<cudaEvent_t> events_;
  std::size_t num_marks_ = 0;
};

// Makes a GPU the calling thread's before anything is created on it.
struct Selected {
  Selected(int gpu, Reach which) : index(gpu), reach(which) {
    ORTHANT_CUDA(cudaSetDevice(gpu));
    const int count = reach == Reach::kAllGpus ? num_cuda_gpus() : 0;
    for (int other = 0; other < count; ++other) {
      int can_access = 0;
      if (other != gpu) ORTHANT_CUDA(cudaDeviceCanAccessPeer(&can_access, gpu, other));
      if (can_access == 0) continue;
      const cudaError_t status = cudaDeviceEnablePeerAccess(other, 0);
      if (status == cudaErrorPeerAccessAlreadyEnabled) {
        cudaGetLastError();  // by a rank on the same GPU
      } else {
        check_cuda(status, "cudaDeviceEnablePeerAccess");
      }
    }
  }
  int index;
  Reach reach;
};

std::optional<NumaNode> node_of(int gpu) {
  std::array<char, 32> bus_id{};
  ORTHANT_CUDA(cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), gpu));
  return numa_node_of(bus_id.data());
}

class CudaDevice final : public Device {
 public:
  CudaDevice(int index, Reach reach) : gpu_(index, reach), blocks_(kNumBlocks) {}

  std::byte* reserve(std::int64_t bytes) override {
    if (bytes == 0) return nullptr;
    void* data = nullptr;
    // Another process can map whole allocations of the driver alone, which small ones share.
    const std::int64_t whole = (bytes + kMapped - 1) / kMapped * kMapped;
    const std::int64_t taken = gpu_.reach == Reach::kOwnGpu ? whole : bytes;
    const cudaError_t status = cudaMalloc(&data, static_cast<std::size_t>(taken));
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // it would be reported again
      std::size_t free = 0;
      std::size_t total = 0;
      ORTHANT_CUDA(cudaMemGetInfo(&free, &total));
      throw Error(Fault::kPlan,
                  fmt::format("cannot reserve {} on GPU {}: {} of {} are free", format_bytes(bytes),
                              gpu_.index, format_bytes(static_cast<std::int64_t>(free)),
                              format_bytes(static_cast<std::int64_t>(total))));
    }
    check_cuda(status, "cudaMalloc");
    ORTHANT_CUDA(cudaMemsetAsync(data, 0, static_cast<std::size_t>(bytes), stream_.get()));
    return static_cast<std::byte*>(data);
  }
  void release(std::byte* data, std::int64_t /*bytes*/) noexcept override { cudaFree(data); }

  void to_device(const Tensor& to, std::span<const std::byte> from) override {
    const auto bytes = static_cast<std::int64_t>(from.size());
    ORTHANT_CHECK(bytes == to.bytes(), "copy of {} bytes into a tensor of {}", bytes, to.bytes());
    for (std::int64_t done = 0; done < bytes;) {
      if (current().free_bytes() == 0 || current().free_bytes() < std::min(bytes - done, kSmall)) {
        advance();
      }
      const std::int64_t count = std::min(bytes - done, current().free_bytes());
      std::byte* const staged = current().take(count);
      std::memcpy(staged, from.data() + done, static_cast<std::size_t>(count));
      ORTHANT_CUDA(cudaMemcpyAsync(to.data + done, staged, static_cast<std::size_t>(count),
                                   cudaMemcpyHostToDevice, stream_.get()));
      done += count;
    }
  }

  Device& host() override { return *host_; }
  std::int64_t start_copy(Lane lane, const Tensor& to, const Tensor& from) override {
    return lanes_.copy(lane, to, from);
  }
  std::int64_t start_work(Lane lane, LaneWork& work) override { return lanes_.work(lane, work); }
  void* queue_beside() const override { return lanes_.queue_beside(); }
  void order(Lane later, Lane lane, std::int64_t number) override {
    lanes_.order(later, lane, number);
  }
  void drain() noexcept override { lanes_.drain(); }

  void to_host(std::span<std::byte> to, const Tensor& from) override {
    const auto bytes = static_cast<std::int64_t>(to.size());
    ORTHANT_CHECK(bytes == from.bytes(), "copy of a tensor of {} bytes into {}", from.bytes(),
                  bytes);
    for (std::int64_t done = 0; done < bytes; done += Block::kBytes) {
      const auto count = static_cast<std::size_t>(std::min(bytes - done, Block::kBytes));
      ORTHANT_CUDA(cudaMemcpyAsync(back_.data(), from.data + done, count, cudaMemcpyDeviceToHost,
                                   stream_.get()));
      ORTHANT_CUDA(cudaStreamSynchronize(stream_.get()));
      std::memcpy(to.data() + done, back_.data(), count);
    }
  }

  void* queue() const override { return stream_.get(); }
  std::unique_ptr<QueueTimer> timer() override {
    return std::make_unique<StreamTimer>(stream_.get());
  }

 private:
  // As many as the small copies of one step fill, so that these never wait.
  static constexpr std::size_t kNumBlocks = 32;
  static constexpr std::int64_t kMapped = std::int64_t{2} << 20;
  static constexpr std::int64_t kSmall = std::int64_t{1} << 14;  // copies that are not divided

  Block& current() { return blocks_[at_]; }
  void advance() {
    current().close(stream_.get());
    at_ = (at_ + 1) % blocks_.size();
    current().open();
  }

  Selected gpu_;
  std::optional<NumaNode> node_ = node_of(gpu_.index);
  std::unique_ptr<Device> host_ = make_pinned_memory(node_);
  CudaStream stream_;
  CudaLanes lanes_{stream_.get(), node_};
  std::vector<Block> blocks_;
  std::size_t at_ = 0;
  Block back_;
};

}  // namespace

std::unique_ptr<Device> make_cuda_device(int index, Reach reach) {
  return std::make_unique<CudaDevice>(index, reach);
}

void use_cuda_gpu(int index) {
  ORTHANT_CUDA(cudaSetDevice(index));
}

int num_cuda_gpus() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();  // no driver, or no GPU
  return 0;
}

std::int64_t free_cuda_bytes(int index) {
  int current = 0;
  ORTHANT_CUDA(cudaGetDevice(&current));
  // Selecting a GPU takes memory of it, so it is not done without need.
  if (index != current) ORTHANT_CUDA(cudaSetDevice(index));
  std::size_t free = 0;
  std::size_t total = 0;
  ORTHANT_CUDA(cudaMemGetInfo(&free, &total));
  if (index != current) ORTHANT_CUDA(cudaSetDevice(current));
  return static_cast<std::int64_t>(free);
}

std::vector<GpuFacts> cuda_gpus() {
  std::vector<GpuFacts> gpus;
  for (int i = 0; i < num_cuda_gpus(); ++i) {
    cudaDeviceProp found{};
    ORTHANT_CUDA(cudaGetDeviceProperties(&found, i));
    gpus.push_back({.name = found.name,
                    .capability = found.major * 10 + found.minor,
                    .multiprocessors = found.multiProcessorCount,
                    .free_bytes = 0,
                    .total_bytes = static_cast<std::int64_t>(found.totalGlobalMem)});
  }
  return gpus;
}

}  // namespace orthant
