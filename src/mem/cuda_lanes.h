// What one GPU does beside its ops: copies out, copies in, work of the host's processor and of its
// own, each in a stream of its own.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include <cuda_runtime_api.h>

#include "mem/device.h"
#include "mem/numa.h"

namespace orthant {

class CudaStream {
 public:
  CudaStream();
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class CudaEvent {  // without times
 public:
  CudaEvent();
  ~CudaEvent();
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  CudaEvent(CudaEvent&& other) noexcept;
  CudaEvent& operator=(CudaEvent&&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// As Device says of start_copy() and what follows it.
class CudaLanes {
 public:
  // `node`: where the host's work runs; nothing: anywhere.
  CudaLanes(cudaStream_t ops, std::optional<NumaNode> node);
  ~CudaLanes() { drain(); }
  CudaLanes(const CudaLanes&) = delete;
  CudaLanes& operator=(const CudaLanes&) = delete;

  std::int64_t copy(Lane lane, const Tensor& to, const Tensor& from);
  std::int64_t work(Lane lane, LaneWork& work);
  cudaStream_t queue_beside() const { return queues_.back().stream.get(); }
  void order(Lane later, Lane lane, std::int64_t number);
  void drain() noexcept;

 private:
  // An event ends each call. An old one marks a later call again when many more have been started;
  // who then waits for the old call waits for the later one, which was started before the wait.
  static constexpr std::int64_t kMostEvents = 4096;
  struct Queue {
    CudaStream stream;
    std::vector<CudaEvent> ends;
    std::int64_t count = 0;
  };
  Queue& queue(Lane lane);
  void follow_ops(const Queue& lane);
  static std::int64_t end_call(Queue& lane);

  cudaStream_t ops_;
  CudaEvent ops_so_far_;
  std::optional<NumaNode> node_;
  std::array<Queue, 4> queues_;  // kCopyIn, kCopyOut, kHost, kBeside
};

}  // namespace orthant
