// What kernels share: element types, accesses of up to 16 bytes, the arithmetic of the cpu backend
// (same exp, divisions as exact), and sums over threads in a fixed order.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "mem/cuda_check.h"
#include "mem/tensor.h"

namespace orthant::cuda {

using BF16 = __nv_bfloat16;
using F16 = __half;

// Calls f with a value of the element type.
template <class F>
inline void with_type(DType type, std::string_view op, F&& f) {
  switch (type) {
    case DType::kF32: return f(float{});
    case DType::kBF16: return f(BF16{});
    case DType::kF16: return f(F16{});
    default: break;
  }
  ORTHANT_CHECK(false, "{}: the cuda backend has no kernel for {}; use f32, bf16 or f16", op,
                name_of(type));
}

// Elements that a thread takes at once: kPack where rows and pointers allow it, else one.
inline constexpr int kPack = 8;
template <class F>
inline void with_width(bool packs, F&& f) {
  if (packs) return f(std::integral_constant<int, kPack>{});
  return f(std::integral_constant<int, 1>{});
}

inline bool is_aligned(const Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.data) % 16 == 0;
}
template <class... Tensors>
inline bool are_aligned(const Tensors&... tensors) {
  return (is_aligned(tensors) && ...);
}

inline void check_launch(std::string_view op) {
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) {
    fail_run("cuda: {} could not be started: {}", op, cudaGetErrorString(status));
  }
}

inline constexpr int kThreads = 256;
inline unsigned blocks_for(std::int64_t count, std::int64_t per_block) {
  return static_cast<unsigned>((count + per_block - 1) / per_block);
}

// A kernel may take more than 48 KiB of shared memory, with what it declares, once this has been
// said.
template <class K>
inline void allow_shared(K kernel, std::size_t bytes) {
  if (bytes <= std::size_t{32} * 1024) return;
  ORTHANT_CUDA(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                    cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(bytes)));
}

__device__ inline float to_float(float x) {
  return x;
}
__device__ inline float to_float(BF16 x) {
  return __bfloat162float(x);
}
__device__ inline float to_float(F16 x) {
  return __half2float(x);
}
template <class T>
__device__ inline T from_float(float x) {
  if constexpr (std::is_same_v<T, BF16>) {
    return __float2bfloat16_rn(x);
  } else if constexpr (std::is_same_v<T, F16>) {
    return __float2half_rn(x);
  } else {
    return x;
  }
}

template <int W>
struct Values {
  float at[W];
};

// W elements as they lie in memory: fewer registers than as floats.
template <int W, class T>
struct Raw {
  static constexpr int kEach = W == 1 ? 1 : 16 / static_cast<int>(sizeof(T));
  struct alignas(W == 1 ? sizeof(T) : 16) Word {
    T elements[kEach];
  };
  Word words[W / kEach];
};

// With W above 1 the address is a multiple of 16 bytes.
template <int W, class T>
__device__ inline Raw<W, T> load_raw(const T* p) {
  Raw<W, T> raw;
#pragma unroll
  for (int word = 0; word < W / Raw<W, T>::kEach; ++word) {
    raw.words[word] = reinterpret_cast<const typename Raw<W, T>::Word*>(p)[word];
  }
  return raw;
}

template <int W, class T>
__device__ inline void store_raw(T* p, const Raw<W, T>& raw) {
#pragma unroll
  for (int word = 0; word < W / Raw<W, T>::kEach; ++word) {
    reinterpret_cast<typename Raw<W, T>::Word*>(p)[word] = raw.words[word];
  }
}

template <int W, class T>
__device__ inline Values<W> unpack(const Raw<W, T>& raw) {
  Values<W> values;
#pragma unroll
  for (int i = 0; i < W; ++i) {
    values.at[i] = to_float(raw.words[i / Raw<W, T>::kEach].elements[i % Raw<W, T>::kEach]);
  }
  return values;
}

template <int W, class T>
__device__ inline Values<W> load(const T* p) {
  return unpack(load_raw<W>(p));
}

template <int W, class T>
__device__ inline void store(T* p, const Values<W>& values) {
  Raw<W, T> raw;
#pragma unroll
  for (int i = 0; i < W; ++i) {
    raw.words[i / Raw<W, T>::kEach].elements[i % Raw<W, T>::kEach] = from_float<T>(values.at[i]);
  }
  store_raw<W>(p, raw);
}

// The value as it is when it has been stored.
template <class T>
__device__ inline float rounded(float x) {
  return to_float(from_float<T>(x));
}

// e^x for x in [-88, 88], as the cpu backend computes it.
__device__ inline float exp_within(float bounded) {
  const float shift = 0x1.8p23F + 127.0F;
  const float shifted = __fmaf_rn(bounded, 0x1.715476p+0F, shift);
  const float scale = __int_as_float(__float_as_int(shifted) << 23);
  const float n = shifted - shift;
  float r = __fmaf_rn(-n, 0x1.62e400p-1F, bounded);
  r = __fmaf_rn(-n, 0x1.7f7d1cp-20F, r);
  float p = 0x1.a01a02p-13F;
  p = __fmaf_rn(p, r, 0x1.6c16c2p-10F);
  p = __fmaf_rn(p, r, 0x1.111112p-7F);
  p = __fmaf_rn(p, r, 0x1.555556p-5F);
  p = __fmaf_rn(p, r, 0x1.555556p-3F);
  p = __fmaf_rn(p, r, 0.5F);
  p = __fmaf_rn(r * r, p, r);
  return __fmaf_rn(p, scale, scale);
}

// e^x: 0 below -87.7 (-inf too), e^88 from 88 on, NaN for NaN.
__device__ inline float exp_of(float x) {
  const float above = x < -88.0F ? -88.0F : x;
  return exp_within(above > 88.0F ? 88.0F : above);
}

// a / b, rounded to nearest, for a normal b whose reciprocal is normal and a quotient that is.
__device__ inline float divide(float a, float b) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(b));
  r = __fmaf_rn(__fmaf_rn(-b, r, 1.0F), r, r);
  const float q = a * r;
  return __fmaf_rn(__fmaf_rn(-b, q, a), r, q);
}

// The same of what is rounded to T in the end: for 16 bits the processor's own exp and quotient,
// whose errors, 2^-22 near 0 and 2^-17 at most, are far below that.
template <class T>
__device__ inline float exp_for(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return exp_of(x);
  } else {
    return __expf(x);
  }
}
template <class T>
__device__ inline float divide_for(float a, float b) {
  if constexpr (std::is_same_v<T, float>) {
    return divide(a, b);
  } else {
    return __fdividef(a, b);
  }
}

// Sum and maximum over the threads of a warp: every lane gets the same bits.
template <class V>
__device__ inline V warp_sum(V v) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    v += __shfl_xor_sync(0xffffffffu, v, step);
  }
  return v;
}
__device__ inline float warp_max(float v) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, step));
  }
  return v;
}

// Sum over a block of whole warps, in the order of the warps, for every thread. `shared` has a
// place for each warp and may be used again after the next barrier.
template <class V>
__device__ inline V block_sum(V v, V* shared) {
  const int warps = static_cast<int>(blockDim.x) / 32;
  v = warp_sum(v);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
  __syncthreads();
  V total = 0;
  for (int i = 0; i < warps; ++i) {
    total += shared[i];
  }
  return total;
}

}  // namespace orthant::cuda
