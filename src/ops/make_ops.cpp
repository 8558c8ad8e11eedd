// Which backend a name stands for. The only place in this room that looks at the platform.
#include <string>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/meta/meta_ops.h"
#include "ops/ops.h"
#include "ops/processor.h"
#include "ops/ref/ref_ops.h"
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#if defined(ORTHANT_HAS_CUDA)
#include "ops/cuda/cuda_ops.h"
#endif

namespace orthant {
namespace {

// What the cpu backend needs and this processor lacks; empty when it can run.
std::vector<std::string> missing_features() {
  std::vector<std::string> missing;
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2")) missing.emplace_back("AVX2");
  if (!__builtin_cpu_supports("fma")) missing.emplace_back("FMA");
  if (!__builtin_cpu_supports("bmi2")) missing.emplace_back("BMI2");
#else
  missing.emplace_back("the x86-64 instruction set");
#endif
  return missing;
}

#if defined(__x86_64__)
bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}

// A process must ask the system before it may use tiles.
bool has_amx() {
  constexpr unsigned kBF16 = 1U << 22;
  constexpr unsigned kTiles = 1U << 24;
  constexpr long kRequestState = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  return (edx & kBF16) != 0 && (edx & kTiles) != 0 &&
         ::syscall(SYS_arch_prctl, kRequestState, kTileData) == 0;
}
#endif

}  // namespace

ProcessorFeatures processor_features() {
  ProcessorFeatures features;
  if (!missing_features().empty()) return features;
  features.levels.push_back(CpuLevel::kAvx2);
#if defined(__x86_64__)
  features.has_avx512_bf16 = __builtin_cpu_supports("avx512bf16") != 0;
  if (!has_avx512()) return features;
  features.levels.push_back(CpuLevel::kAvx512);
  if (has_amx()) features.levels.push_back(CpuLevel::kAmx);
#endif
  return features;
}

std::string_view ops_kind(CpuLevel level) {
  switch (level) {
    case CpuLevel::kAvx2: return "cpu-avx2";
    case CpuLevel::kAvx512: return "cpu-avx512";
    default: return "cpu-amx";
  }
}

std::vector<std::string> ops_kinds() {
#if defined(ORTHANT_HAS_CUDA)
  return {"cpu", "cuda", "ref"};
#else
  return {"cpu", "ref"};
#endif
}

std::unique_ptr<Ops> make_ops(std::string_view kind, const OpsParts& parts) {
  if (kind == "ref") return std::make_unique<RefOps>(parts);
  if (kind == "meta") return std::make_unique<MetaOps>(parts);
  if (kind == "cpu") {
    const std::vector<std::string> missing = missing_features();
    if (!missing.empty()) {
      fail_user(
          "ops 'cpu' need a processor with AVX2, FMA and BMI2; this one lacks {}; use another "
          "machine",
          join(missing));
    }
    return make_cpu_ops(parts, processor_features().levels.back());
  }
  for (const CpuLevel level : processor_features().levels) {
    if (kind == ops_kind(level)) return make_cpu_ops(parts, level);
  }
#if defined(ORTHANT_HAS_CUDA)
  if (kind == "cuda") return make_cuda_ops(parts);
#endif
  fail_user("ops '{}' are not built in; known are {} and meta", kind, join(ops_kinds()));
}

}  // namespace orthant
