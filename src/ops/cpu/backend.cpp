#include "ops/cpu/backend.h"

namespace orthant::cpu::ORTHANT_LEVEL {

CpuOps::CpuOps(const OpsParts& parts, std::unique_ptr<Workshop> workshop)
    : Ops(parts.ledger, parts.in_flight, parts.work),
      num_threads_(workshop->num_threads()),
      workshop_(std::move(workshop)) {}

std::unique_ptr<Ops> make_backend(const OpsParts& parts, std::unique_ptr<Workshop> workshop) {
  return std::make_unique<CpuOps>(parts, std::move(workshop));
}

}  // namespace orthant::cpu::ORTHANT_LEVEL
