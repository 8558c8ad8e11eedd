// The cpu backend: every op, its loops shared out to threads, in vectors as wide as the processor
// has them.
#pragma once

#include <memory>

#include "ops/ops.h"
#include "ops/processor.h"

namespace orthant {

// Bits of results do not depend on parts.num_threads, those of ops without sums not on the level,
// which must be one that cpu_levels() has.
std::unique_ptr<Ops> make_cpu_ops(const OpsParts& parts, CpuLevel level);

}  // namespace orthant
