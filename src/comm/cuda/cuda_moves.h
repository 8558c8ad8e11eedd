// DeviceMoves on a CUDA stream.
#pragma once

#include <memory>

#include "comm/device_moves.h"

namespace orthant {

std::unique_ptr<DeviceMoves> make_cuda_moves(void* queue);

}  // namespace orthant
