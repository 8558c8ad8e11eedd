// DeviceLinks of GPUs: mapped memory where all ranks are on one host whose GPUs reach each other,
// NCCL elsewhere.
#pragma once

#include <memory>

#include "comm/device_links.h"

namespace orthant {

std::unique_ptr<DeviceLinks> make_cuda_links(StreamRank& rank, const CommParts& parts);

}  // namespace orthant
