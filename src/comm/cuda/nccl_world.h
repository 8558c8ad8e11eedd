// NCCL as the links of a rank, where it is built in.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <cuda_runtime_api.h>

#include "comm/cuda/queue_watch.h"
#include "comm/device_links.h"

namespace orthant {

class NcclWorld {
 public:
  virtual ~NcclWorld() = default;
  virtual std::unique_ptr<DeviceCarrier> carrier(LinkedGroup group) = 0;
  virtual void abort_all() noexcept = 0;  // what GPUs wait for in it ends
  virtual std::optional<BrokenLink> find_broken() = 0;
  virtual std::string version() const = 0;  // "2.28.9"
};

// Throws a user error where NCCL is not built in or cannot be loaded. `rank_order`: sums have the
// bits of any transport.
std::unique_ptr<NcclWorld> make_nccl_world(cudaStream_t ops, QueueWatch& watch, bool rank_order);

}  // namespace orthant
