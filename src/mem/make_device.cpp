// Which device a name stands for. The only place in this room that looks at what is built in.
#include <string>

#include "base/check.h"
#include "mem/gpus.h"
#if defined(ORTHANT_HAS_CUDA)
#include "mem/cuda_device.h"
#endif

namespace orthant {

std::unique_ptr<Device> make_device(std::string_view kind, int index) {
  if (kind != "cuda") return kind == "meta" ? make_meta_device() : make_host_device();
  const int count = num_gpus();
  if (index >= count) fail_user("device 'cuda': GPU {} is asked for, {} are here", index, count);
#if defined(ORTHANT_HAS_CUDA)
  return make_cuda_device(index, Reach::kAllGpus);
#else
  return nullptr;
#endif
}

int gpu_of(int rank) {
  const int count = num_gpus();
  return count == 0 ? 0 : rank % count;
}

int num_gpus() {
#if defined(ORTHANT_HAS_CUDA)
  return num_cuda_gpus();
#else
  return 0;
#endif
}

std::vector<GpuFacts> gpu_facts() {
#if defined(ORTHANT_HAS_CUDA)
  return cuda_gpus();
#else
  return {};
#endif
}

std::vector<GpuFacts> gpus() {
  std::vector<GpuFacts> found = gpu_facts();
  for (std::size_t i = 0; i < found.size(); ++i) {
    found[i].free_bytes = free_gpu_bytes(static_cast<int>(i));
  }
  return found;
}

void use_gpu([[maybe_unused]] int index) {
#if defined(ORTHANT_HAS_CUDA)
  use_cuda_gpu(index);
#endif
}

std::int64_t free_gpu_bytes([[maybe_unused]] int index) {
#if defined(ORTHANT_HAS_CUDA)
  return free_cuda_bytes(index);
#else
  return 0;
#endif
}

std::unique_ptr<Device> make_gpu_of_process([[maybe_unused]] int index) {
#if defined(ORTHANT_HAS_CUDA)
  return make_cuda_device(index, Reach::kOwnGpu);
#else
  fail_user("GPU {} is asked for, and no GPU backend is built in", index);
#endif
}

}  // namespace orthant
