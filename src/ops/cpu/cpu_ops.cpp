#include "ops/cpu/cpu_ops.h"

#include <algorithm>

#include "ops/cpu/attention_blocks.h"
#include "ops/cpu/backend.h"

namespace orthant {
namespace cpu {

CpuOps::CpuOps(const OpsParts& parts)
    : Ops(parts.ledger, parts.in_flight, parts.work),
      num_threads_(std::max(1, parts.num_threads)),
      products_(make_products(num_threads_)) {
  for (int thread = 0; thread < num_threads_; ++thread) {
    scratch_.emplace_back(kScratchFloats);
  }
}

}  // namespace cpu

std::unique_ptr<Ops> make_cpu_ops(const OpsParts& parts) {
  return std::make_unique<cpu::CpuOps>(parts);
}

}  // namespace orthant
