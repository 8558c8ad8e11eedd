// The memory of one GPU. Copies are queued with the ops of the rank.
#pragma once

#include <cstdint>
#include <memory>

#include "mem/device.h"

namespace orthant {

// Of GPU `index`, with a queue of its own; the calling thread uses that GPU from here on.
enum class Reach : std::uint8_t {
  kAllGpus,  // the memory of all others, too
  kOwnGpu,   // which other processes may map
};
std::unique_ptr<Device> make_cuda_device(int index, Reach reach);

std::vector<GpuFacts> cuda_gpus();  // free_bytes is 0
int num_cuda_gpus();
void use_cuda_gpu(int index);
std::int64_t free_cuda_bytes(int index);  // the calling thread stays with its GPU

}  // namespace orthant
