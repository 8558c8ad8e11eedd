// AmxOps: what a processor with AMX does otherwise than one with AVX-512. Its matrix products are
// the workshop's.
#pragma once

#include "ops/cpu/backend.h"

namespace orthant::cpu::avx512 {

class AmxOps final : public CpuOps {
 public:
  using CpuOps::CpuOps;

 protected:
  using CpuOps::exec;
  void exec(const AttentionFwd& a, const Tensor& workspace) override;
  void exec(const AttentionBwd& a, const Tensor& workspace) override;
};

}  // namespace orthant::cpu::avx512
