// Device: the only allocator calls of the project, and copies between a device and the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ledger.h"
#include "mem/tensor.h"

namespace orthant {

// Measures what is queued: marks are points in the queue.
class QueueTimer {
 public:
  virtual ~QueueTimer() = default;
  virtual int mark() = 0;
  // Waits until the queue has passed both.
  virtual double seconds_between(int first, int second) = 0;
  virtual void forget() = 0;  // all marks; the next one is 0
};

// What is done beside the ops. It outlives its run and does not throw.
class LaneWork {
 public:
  virtual ~LaneWork() = default;
  virtual void run() noexcept = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  // Called once per arena, never while training. Zero-filled, aligned to 4096 bytes.
  virtual std::byte* reserve(std::int64_t bytes) = 0;
  virtual void release(std::byte* data, std::int64_t bytes) noexcept = 0;
  // In order with the ops of the same rank; the host memory may be reused on return.
  virtual void to_device(const Tensor& to, std::span<const std::byte> from) = 0;
  virtual void to_host(std::span<std::byte> to, const Tensor& from) = 0;
  // What the rank's ops are queued on (a cudaStream_t); null: the host, where nothing is queued.
  virtual void* queue() const { return nullptr; }
  // Null where nothing is queued.
  virtual std::unique_ptr<QueueTimer> timer() { return nullptr; }
  // Memory of the host for copies beside the ops; this device itself where that is the host.
  virtual Device& host() { return *this; }
  // Starts a copy between memory of this device and of host(), on Lane::kCopyOut or kCopyIn: after
  // the ops queued so far, in order within the lane. Returns its number within the lane.
  virtual std::int64_t start_copy(Lane lane, const Tensor& to, const Tensor& from) = 0;
  // The same of work: on Lane::kHost run() is called by a thread of the host, on Lane::kBeside at
  // once, to queue what the device does on queue_beside().
  virtual std::int64_t start_work(Lane lane, LaneWork& work) = 0;
  virtual void* queue_beside() const { return nullptr; }  // null where nothing is queued
  // What is queued on `later` from here on comes after that copy or work of `lane`; what is started
  // comes after what kCompute comes after.
  virtual void order(Lane later, Lane lane, std::int64_t number) = 0;
  // Returns when all copies and works that were started are over.
  virtual void drain() noexcept = 0;
};

// kind: "cuda" (GPU `index`), "meta", or one of the ops that work in host memory. Throws a user
// error where that GPU is not.
std::unique_ptr<Device> make_device(std::string_view kind, int index);

// The GPU of a rank among those of one process: ranks take them in turn.
int gpu_of(int rank);

// The GPUs that this binary can use; none without the CUDA backend or a driver.
struct GpuFacts {
  std::string name;
  int capability;  // 90: 9.0
  int multiprocessors;
  std::int64_t free_bytes;
  std::int64_t total_bytes;
};
std::vector<GpuFacts> gpus();

// Plain host memory.
std::unique_ptr<Device> make_host_device();

// Addresses that no processor accepts, without memory behind them: copies do nothing, touching one
// is a crash. The dry run's device.
std::unique_ptr<Device> make_meta_device();

// Capacity of an arena in the dry run.
inline constexpr std::int64_t kDryRunArenaBytes = std::int64_t{1} << 50;

}  // namespace orthant
