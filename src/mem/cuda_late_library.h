// Functions of libraries that are loaded when the first of them is called: the binary needs none of
// cuBLASLt, cuDNN and NCCL to start.
#pragma once

#include <string>

namespace orthant::cuda {

// Loads the library once; throws a user error that says what to do where it is not.
void* late_function(const std::string& library, const char* name);

}  // namespace orthant::cuda

// The body of a function that is defined here with the name and type of the library's.
#define ORTHANT_LATE(library, name, ...)                                                 \
  static const auto late =                                                               \
      reinterpret_cast<decltype(&name)>(::orthant::cuda::late_function(library, #name)); \
  return late(__VA_ARGS__)
