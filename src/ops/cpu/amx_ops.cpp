#include "ops/cpu/amx_ops.h"

namespace orthant::cpu::avx512 {

std::unique_ptr<Ops> make_amx_backend(const OpsParts& parts, std::unique_ptr<Workshop> workshop) {
  return std::make_unique<AmxOps>(parts, std::move(workshop));
}

}  // namespace orthant::cpu::avx512
