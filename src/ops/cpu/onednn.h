// oneDNN's matrix product behind one door: what differs between its versions stands here.
#pragma once

#include <dnnl.hpp>
#include <omp.h>

#include "mem/dtype.h"

namespace orthant::cpu {

struct MatmulShapes {
  dnnl::memory::desc a;
  dnnl::memory::desc b;
  dnnl::memory::desc bias;  // zero: none
  dnnl::memory::desc c;
};

inline dnnl::matmul::primitive_desc matmul_desc(const dnnl::engine& engine, const MatmulShapes& of,
                                                const dnnl::primitive_attr& attributes) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine, of.a, of.b, of.bias, of.c, attributes};
#else
  return {dnnl::matmul::desc(of.a, of.b, of.bias, of.c), attributes, engine};
#endif
}

// The instructions that oneDNN uses on this processor contain those.
inline bool onednn_has(dnnl::cpu_isa instructions) {
  const auto used = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto needed = static_cast<unsigned>(instructions);
  return (used & needed) == needed;
}

// bf16 products at their own speed: otherwise oneDNN has none, or one slower than f32.
inline bool onednn_has_bf16() {
  return onednn_has(dnnl::cpu_isa::avx512_core_bf16);
}

// Sets the calling thread's number of OpenMP threads for a scope.
class OpenMpThreads {
 public:
  explicit OpenMpThreads(int count) : before_(omp_get_max_threads()) { omp_set_num_threads(count); }
  ~OpenMpThreads() { omp_set_num_threads(before_); }
  OpenMpThreads(const OpenMpThreads&) = delete;
  OpenMpThreads& operator=(const OpenMpThreads&) = delete;

 private:
  int before_;
};

inline dnnl::memory::data_type onednn_type(DType type) {
  switch (type) {
    case DType::kBF16: return dnnl::memory::data_type::bf16;
    case DType::kF16: return dnnl::memory::data_type::f16;
    default: return dnnl::memory::data_type::f32;
  }
}

}  // namespace orthant::cpu
