// Reductions over ranks, added in rank order: the same bits on every rank and transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/communicator.h"

namespace orthant {

// outputs[i][k] = inputs[0][k] + inputs[1][k] + ... for `count` elements, to every output. bf16 is
// added in f32 and rounded once. An output may be one of the inputs.
void reduce_in_rank_order(DType dtype, Reduce reduce, std::span<const std::byte* const> inputs,
                          std::span<std::byte* const> outputs, std::int64_t count);

}  // namespace orthant
