#include "ops/cpu/cpu_ops.h"

#include <algorithm>

#include "base/check.h"
#include "ops/cpu/workshop.h"

namespace orthant {
namespace cpu {

Workshop::Workshop(CpuLevel level, int num_threads)
    : num_threads_(std::max(1, num_threads)),
      products_(make_products(level, num_threads_)) {
  for (int thread = 0; thread < num_threads_; ++thread) {
    scratch_.emplace_back(kScratchFloats);
  }
}

Workshop::~Workshop() = default;

int Workshop::num_threads() const {
  return num_threads_;
}
Products& Workshop::products() {
  return *products_;
}
float* Workshop::scratch(int thread) {
  return scratch_[static_cast<std::size_t>(thread)].data();
}

void refuse_type(std::string_view op, DType type) {
  ORTHANT_CHECK(false, "{}: the cpu backend has no kernel for {}; use f32, bf16 or f16", op,
                name_of(type));
}

void check_head_width(std::string_view op, const AttentionShape& n) {
  ORTHANT_CHECK(n.D <= kMaxHeadWidth, "{}: heads of the cpu backend are at most {} wide, not {}",
                op, kMaxHeadWidth, n.D);
}

namespace avx2 {
std::unique_ptr<Ops> make_backend(const OpsParts& parts, std::unique_ptr<Workshop> workshop);
}
namespace avx512 {
std::unique_ptr<Ops> make_backend(const OpsParts& parts, std::unique_ptr<Workshop> workshop);
std::unique_ptr<Ops> make_amx_backend(const OpsParts& parts, std::unique_ptr<Workshop> workshop);
}  // namespace avx512

}  // namespace cpu

std::unique_ptr<Ops> make_cpu_ops(const OpsParts& parts, CpuLevel level) {
  auto workshop = std::make_unique<cpu::Workshop>(level, parts.num_threads);
  if (level == CpuLevel::kAvx2) return cpu::avx2::make_backend(parts, std::move(workshop));
  if (level == CpuLevel::kAvx512) return cpu::avx512::make_backend(parts, std::move(workshop));
  return cpu::avx512::make_amx_backend(parts, std::move(workshop));
}

}  // namespace orthant
