#include "mem/cuda_lanes.h"

#include <utility>

#include "mem/cuda_check.h"

namespace orthant {

CudaStream::CudaStream() {
  ORTHANT_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
}

CudaStream::~CudaStream() {
  cudaStreamDestroy(stream_);
}

CudaEvent::CudaEvent() {
  ORTHANT_CUDA(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
}

CudaEvent::CudaEvent(CudaEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}

CudaEvent::~CudaEvent() {
  if (event_ != nullptr) cudaEventDestroy(event_);
}

// The driver runs all work of the host on a thread of its own: that is bound before it has any.
CudaLanes::CudaLanes(cudaStream_t ops, std::optional<NumaNode> node)
    : ops_(ops),
      node_(std::move(node)) {
  if (!node_) return;
  const auto bind = [](void* where) {
    run_thread_on(*static_cast<const NumaNode*>(where));
  };
  ORTHANT_CUDA(cudaLaunchHostFunc(queue(Lane::kHost).stream.get(), bind, &*node_));
}

CudaLanes::Queue& CudaLanes::queue(Lane lane) {
  const auto index = static_cast<std::size_t>(lane) - static_cast<std::size_t>(Lane::kCopyIn);
  ORTHANT_CHECK(index < queues_.size(), "lane {} is no queue of a GPU", static_cast<int>(lane));
  return queues_[index];
}

void CudaLanes::follow_ops(const Queue& lane) {
  ORTHANT_CUDA(cudaEventRecord(ops_so_far_.get(), ops_));
  ORTHANT_CUDA(cudaStreamWaitEvent(lane.stream.get(), ops_so_far_.get(), 0));
}

std::int64_t CudaLanes::end_call(Queue& lane) {
  const auto slot = static_cast<std::size_t>(lane.count % kMostEvents);
  if (slot == lane.ends.size()) lane.ends.emplace_back();
  ORTHANT_CUDA(cudaEventRecord(lane.ends[slot].get(), lane.stream.get()));
  return lane.count++;
}

std::int64_t CudaLanes::copy(Lane lane, const Tensor& to, const Tensor& from) {
  Queue& own = queue(lane);
  follow_ops(own);
  ORTHANT_CUDA(cudaMemcpyAsync(to.data, from.data, static_cast<std::size_t>(from.bytes()),
                               cudaMemcpyDefault, own.stream.get()));
  return end_call(own);
}

std::int64_t CudaLanes::work(Lane lane, LaneWork& work) {
  Queue& own = queue(lane);
  follow_ops(own);
  if (lane == Lane::kBeside) {
    work.run();
    return end_call(own);
  }
  const auto run = [](void* of) {
    static_cast<LaneWork*>(of)->run();
  };
  ORTHANT_CUDA(cudaLaunchHostFunc(own.stream.get(), run, &work));
  return end_call(own);
}

void CudaLanes::order(Lane later, Lane lane, std::int64_t number) {
  const cudaStream_t stream = later == Lane::kCompute ? ops_ : queue(later).stream.get();
  const auto slot = static_cast<std::size_t>(number % kMostEvents);
  ORTHANT_CUDA(cudaStreamWaitEvent(stream, queue(lane).ends.at(slot).get(), 0));
}

void CudaLanes::drain() noexcept {
  for (const Queue& lane : queues_) {
    cudaStreamSynchronize(lane.stream.get());  // a fault of the GPU is told by the next call
  }
}

}  // namespace orthant
