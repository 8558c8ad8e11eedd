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

// Addresses that no processor accepts, without memory behind them: copies do nothing, touching one
// is a crash. The dry run's device.
std::unique_ptr<Device> make_meta_device();

// Capacity of an arena in the dry run.
inline constexpr std::int64_t kDryRunArenaBytes = std::int64_t{1} << 50;

}  // namespace orthant
