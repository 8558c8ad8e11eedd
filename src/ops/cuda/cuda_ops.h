// The cuda backend: every op on one GPU, queued on the stream of its rank's device.
#pragma once

#include <memory>

#include "ops/ops.h"

namespace orthant {

// parts.queue is the device's. Two runs give the same bits, but for last bits of dq of
// attention_bwd in 16 bits and of matrix products of few rows, unless parts.target is
// kCudaDeterministic.
std::unique_ptr<Ops> make_cuda_ops(const OpsParts& parts);

}  // namespace orthant
