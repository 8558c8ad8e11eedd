// One registration an arena. Pages are touched by many threads first: the driver would touch them
// one by one.
#include "mem/cuda_pinned.h"

#include <algorithm>
#include <thread>
#include <vector>

#include <sys/mman.h>

#include "base/text.h"
#include "mem/cuda_check.h"

namespace orthant {
namespace {

constexpr std::int64_t kPage = 4096;

void touch_pages(std::byte* data, std::int64_t bytes) {
  constexpr std::int64_t kLeast = std::int64_t{64} << 20;  // of a thread
  const std::int64_t cores = std::max(1U, std::thread::hardware_concurrency());
  const std::int64_t num_threads = std::clamp<std::int64_t>(bytes / kLeast, 1, cores);
  const std::int64_t share = (bytes / num_threads + kPage) / kPage * kPage;
  std::vector<std::thread> threads;
  for (std::int64_t first = 0; first < bytes; first += share) {
    threads.emplace_back([=] {
      for (std::int64_t at = first; at < std::min(bytes, first + share); at += kPage) {
        *static_cast<volatile std::byte*>(data + at) = std::byte{0};
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

class PinnedMemory final : public Device {
 public:
  explicit PinnedMemory(std::optional<NumaNode> node) : node_(std::move(node)) {}

  std::byte* reserve(std::int64_t bytes) override {
    if (bytes == 0) return nullptr;
    std::byte* const data = plain_->reserve(bytes);
    const auto size = static_cast<std::size_t>(bytes);
    static_cast<void>(::madvise(data, size, MADV_HUGEPAGE));  // a wish
    if (node_) prefer_memory_of(*node_, data, bytes);
    touch_pages(data, bytes);
    const cudaError_t status = cudaHostRegister(data, size, cudaHostRegisterDefault);
    if (status != cudaSuccess) {
      cudaGetLastError();  // it would be reported again
      plain_->release(data, bytes);
      fail_run("cannot lock {} of host memory for copies to the GPU: {}; offload less",
               format_bytes(bytes), cudaGetErrorString(status));
    }
    return data;
  }
  void release(std::byte* data, std::int64_t bytes) noexcept override {
    if (data == nullptr) return;
    cudaHostUnregister(data);
    plain_->release(data, bytes);
  }

  void to_device(const Tensor& to, std::span<const std::byte> from) override {
    plain_->to_device(to, from);
  }
  void to_host(std::span<std::byte> to, const Tensor& from) override { plain_->to_host(to, from); }
  std::int64_t start_copy(Lane lane, const Tensor& to, const Tensor& from) override {
    return plain_->start_copy(lane, to, from);
  }
  std::int64_t start_work(Lane lane, LaneWork& work) override {
    return plain_->start_work(lane, work);
  }
  void order(Lane later, Lane lane, std::int64_t number) override {
    plain_->order(later, lane, number);
  }
  void drain() noexcept override { plain_->drain(); }

 private:
  std::optional<NumaNode> node_;
  std::unique_ptr<Device> plain_ = make_host_device();
};

}  // namespace

std::unique_ptr<Device> make_pinned_memory(const std::optional<NumaNode>& node) {
  return std::make_unique<PinnedMemory>(node);
}

}  // namespace orthant
