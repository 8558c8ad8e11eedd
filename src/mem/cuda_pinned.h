// Host memory that a GPU copies from and to by itself: page-locked, and next to that GPU.
#pragma once

#include <memory>
#include <optional>

#include "mem/device.h"
#include "mem/numa.h"

namespace orthant {

// As make_host_device(), page-locked. `node`: whose memory; nothing: any.
std::unique_ptr<Device> make_pinned_memory(const std::optional<NumaNode>& node);

}  // namespace orthant
