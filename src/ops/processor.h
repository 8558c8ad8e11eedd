// What this processor and this build can do.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orthant {

// Kinds of processors that the cpu backend has code for, each with what those before it have.
enum class CpuLevel : std::uint8_t {
  kAvx2,    // with FMA and BMI2
  kAvx512,  // F, BW, CD, DQ and VL
  kAmx,     // AMX for bf16
};

struct ProcessorFeatures {
  std::vector<CpuLevel> levels;  // best last; none where the cpu backend does not run
  bool has_avx512_bf16 = false;  // bf16 matrix products at their own speed
};
ProcessorFeatures processor_features();

// What make_ops calls the cpu backend at one of these levels, where "cpu" is the best: for tests
// and measurements.
std::string_view ops_kind(CpuLevel level);

// The kinds that make_ops knows, without meta.
std::vector<std::string> ops_kinds();

}  // namespace orthant
