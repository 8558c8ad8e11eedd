// The memory of one GPU. Copies are queued with the ops of the rank.
#pragma once

#include <memory>

#include "mem/device.h"

namespace orthant {

// Of GPU `index`, with a queue of its own; the calling thread uses that GPU from here on, and it
// can reach the memory of all others.
std::unique_ptr<Device> make_cuda_device(int index);

std::vector<GpuFacts> cuda_gpus();

}  // namespace orthant
