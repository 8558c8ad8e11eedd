// What is built in of links between GPUs.
#include "base/check.h"
#include "comm/device_links.h"
#if defined(ORTHANT_HAS_CUDA)
#include "comm/cuda/cuda_links.h"
#endif

namespace orthant {

std::unique_ptr<DeviceLinks> make_device_links([[maybe_unused]] StreamRank& rank,
                                               const CommParts& parts) {
  if (parts.queue == nullptr) return nullptr;
#if defined(ORTHANT_HAS_CUDA)
  return make_cuda_links(rank, parts);
#else
  fail_run("a rank has a queue of a GPU, which this build cannot use");
#endif
}

}  // namespace orthant
