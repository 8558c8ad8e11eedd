// DeviceMoves: how thread ranks whose tensors lie on GPUs move and add them. Everything is queued;
// points in the queues of the ranks keep the order, and no rank waits for a GPU. The GPUs can reach
// each other's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "comm/communicator.h"

namespace orthant {

class DeviceMoves {
 public:
  virtual ~DeviceMoves() = default;
  // What this rank has queued so far. Valid until many later points have been marked.
  virtual void* mark() = 0;
  // What this rank queues from here on comes after a point of another rank. Any thread may say so.
  virtual void wait_for(void* point) = 0;
  virtual void copy(std::byte* to, const std::byte* from, std::int64_t bytes) = 0;
  // As reduce_in_rank_order, with the same bits.
  virtual void reduce(DType dtype, Reduce reduce, std::span<const std::byte* const> inputs,
                      std::span<std::byte* const> outputs, std::int64_t count) = 0;
};

// Null where `queue` is: the tensors lie in host memory.
std::unique_ptr<DeviceMoves> make_device_moves(void* queue);

}  // namespace orthant
