#include "mem/cuda_late_library.h"

#include <dlfcn.h>

#include "base/check.h"

namespace orthant::cuda {

void* late_function(const std::string& library, const char* name) {
  // Loading it again counts and loads nothing; it stays until the process ends.
  void* const loaded = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) {
    fail_user(
        "device.kind='cuda' needs {}, which cannot be loaded: {}; install it, or name its folder "
        "in "
        "LD_LIBRARY_PATH",
        library, ::dlerror());
  }
  void* const function = ::dlsym(loaded, name);
  if (function == nullptr) fail_user("{} has no {}: it is too old", library, name);
  return function;
}

}  // namespace orthant::cuda
