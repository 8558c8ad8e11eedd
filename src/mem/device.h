// Device: the only allocator calls of the project, and copies between a device and the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "mem/tensor.h"

namespace orthant {

class Device {
 public:
  virtual ~Device() = default;
  // Called once per arena, never while training. Zero-filled, aligned to 4096 bytes.
  virtual std::byte* reserve(std::int64_t bytes) = 0;
  virtual void release(std::byte* data, std::int64_t bytes) noexcept = 0;
  // In order with the ops of the same rank; the host memory may be reused on return.
  virtual void to_device(const Tensor& to, std::span<const std::byte> from) = 0;
  virtual void to_host(std::span<std::byte> to, const Tensor& from) = 0;
};

// Plain host memory.
std::unique_ptr<Device> make_host_device();

// Address space without memory: copies do nothing, touching it is a crash. The dry run's device.
std::unique_ptr<Device> make_meta_device();

// Capacities of arenas in the dry run: address space only, for a dozen dry runs at once.
// ORTHANT_DRY_RUN_SHIFT lowers them for builds whose tools cannot map as much (the thread
// sanitizer).
inline constexpr std::int64_t kDryRunParamsBytes = std::int64_t{1} << (42 - ORTHANT_DRY_RUN_SHIFT);
inline constexpr std::int64_t kDryRunWorkBytes = std::int64_t{1} << (39 - ORTHANT_DRY_RUN_SHIFT);
inline constexpr std::int64_t kDryRunSlotBytes = std::int64_t{1} << (37 - ORTHANT_DRY_RUN_SHIFT);

}  // namespace orthant
