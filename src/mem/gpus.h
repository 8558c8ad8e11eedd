// What GPUs are here, without taking any of their memory, and one of them for a process alone.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "mem/device.h"

namespace orthant {

int num_gpus();
std::vector<GpuFacts> gpu_facts();  // free_bytes is 0: asking would take some
void use_gpu(int index);            // by the calling thread, from here on
// By the driver's count, without what it takes for itself.
std::int64_t free_gpu_bytes(int index);

// GPU `index` as make_device makes it, but for the memory of other GPUs, which this process does
// not reach; other processes may map what it reserves.
std::unique_ptr<Device> make_gpu_of_process(int index);

}  // namespace orthant
