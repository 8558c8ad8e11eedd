// The cpu backend: every op for a processor with AVX2 and FMA, its loops shared out to threads.
#pragma once

#include <memory>

#include "ops/ops.h"

namespace orthant {

// Bits of results do not depend on parts.num_threads.
std::unique_ptr<Ops> make_cpu_ops(const OpsParts& parts);

}  // namespace orthant
