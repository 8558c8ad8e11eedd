// Which device a name stands for. The only place in this room that looks at what is built in.
#include <string>

#include "base/check.h"
#include "mem/device.h"
#if defined(ORTHANT_HAS_CUDA)
#include "mem/cuda_device.h"
#endif

namespace orthant {

std::unique_ptr<Device> make_device(std::string_view kind, int index) {
  if (kind != "cuda") return kind == "meta" ? make_meta_device() : make_host_device();
  const std::vector<GpuFacts> found = gpus();
  const int count = static_cast<int>(found.size());
  if (index >= count) fail_user("device 'cuda': GPU {} is asked for, {} are here", index, count);
#if defined(ORTHANT_HAS_CUDA)
  return make_cuda_device(index);
#else
  return nullptr;
#endif
}

int gpu_of(int rank) {
  const int count = static_cast<int>(gpus().size());
  return count == 0 ? 0 : rank % count;
}

std::vector<GpuFacts> gpus() {
#if defined(ORTHANT_HAS_CUDA)
  return cuda_gpus();
#else
  return {};
#endif
}

}  // namespace orthant
