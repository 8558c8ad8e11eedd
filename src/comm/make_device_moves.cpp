// The only place in this room that looks at what is built in.
#include "base/check.h"
#include "comm/device_moves.h"
#if defined(ORTHANT_HAS_CUDA)
#include "comm/cuda/cuda_moves.h"
#endif

namespace orthant {

std::unique_ptr<DeviceMoves> make_device_moves(void* queue) {
  if (queue == nullptr) return nullptr;
#if defined(ORTHANT_HAS_CUDA)
  return make_cuda_moves(queue);
#else
  fail_run("a rank has a queue of a GPU, which this build cannot use");
#endif
}

}  // namespace orthant
