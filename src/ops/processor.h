// What this processor and this build can do.
#pragma once

#include <string>
#include <vector>

namespace orthant {

struct ProcessorFeatures {
  bool has_avx2 = false;         // with FMA and BMI2: what the cpu backend needs
  bool has_avx512_bf16 = false;  // bf16 matrix products at their own speed
};
ProcessorFeatures processor_features();

// The kinds that make_ops knows, without meta.
std::vector<std::string> ops_kinds();

}  // namespace orthant
