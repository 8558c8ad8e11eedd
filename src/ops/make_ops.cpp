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

}  // namespace

ProcessorFeatures processor_features() {
  ProcessorFeatures features;
  features.has_avx2 = missing_features().empty();
#if defined(__x86_64__)
  features.has_avx512_bf16 = __builtin_cpu_supports("avx512bf16") != 0;
#endif
  return features;
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
    return make_cpu_ops(parts);
  }
#if defined(ORTHANT_HAS_CUDA)
  if (kind == "cuda") return make_cuda_ops(parts);
#endif
  fail_user("ops '{}' are not built in; known are {} and meta", kind, join(ops_kinds()));
}

}  // namespace orthant
