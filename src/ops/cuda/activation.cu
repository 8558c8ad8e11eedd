// GELU and SwiGLU with the formulas of the cpu backend; in f32 operation by operation.
#include "ops/cuda/backend.h"
#include "ops/cuda/map.cuh"

namespace orthant::cuda {
namespace {

constexpr float kTwiceRoot = 1.5957691216057308F;  // 2 sqrt(2 / pi)
constexpr float kTwiceCubic = 1.5957691216057308F * 0.044715F;

// e^(-x), below the square root of the largest float. Of a NaN it is a number: what it is
// multiplied with is not.
template <class T>
__device__ inline float bounded_exp_minus(float x) {
  return exp_for<T>(fminf(-x, 43.0F));
}

template <class T>
struct Gelu {
  __device__ float operator()(float x) const {
    const float u = x * __fmaf_rn(x * x, kTwiceCubic, kTwiceRoot);
    return divide_for<T>(x, 1.0F + bounded_exp_minus<T>(u));
  }
};

template <class T>
struct GeluGradient {
  __device__ float operator()(float dy, float x) const {
    const float square = x * x;
    const float u = x * __fmaf_rn(square, kTwiceCubic, kTwiceRoot);
    const float du = __fmaf_rn(square, 3 * kTwiceCubic, kTwiceRoot);
    const float e = bounded_exp_minus<T>(u);
    const float s = divide_for<T>(1.0F, 1.0F + e);
    return dy * __fmaf_rn(x * du, (e * s) * s, s);
  }
};

// Row and column of a thread's first element.
struct At {
  std::int64_t row;
  std::int64_t column;
};
template <int W>
__device__ inline At element_at(std::int64_t F) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * W;
  return {i / F, i % F};
}

template <int W, class T>
__global__ void swiglu_kernel(std::int64_t rows, std::int64_t F, T* y, const T* gate_up) {
  const auto [row, column] = element_at<W>(F);
  if (row >= rows) return;
  const Values<W> gate = load<W>(gate_up + row * 2 * F + column);
  const Values<W> up = load<W>(gate_up + row * 2 * F + F + column);
  Values<W> out;
#pragma unroll
  for (int k = 0; k < W; ++k) {
    const float silu = divide_for<T>(gate.at[k], 1.0F + bounded_exp_minus<T>(gate.at[k]));
    out.at[k] = silu * up.at[k];
  }
  store<W>(y + row * F + column, out);
}

template <int W, class T>
__global__ void swiglu_gradient_kernel(std::int64_t rows, std::int64_t F, T* d_gate_up, const T* dy,
                                       const T* gate_up) {
  const auto [row, column] = element_at<W>(F);
  if (row >= rows) return;
  const std::int64_t at = row * 2 * F + column;
  const Values<W> gate = load<W>(gate_up + at);
  const Values<W> up = load<W>(gate_up + at + F);
  const Values<W> d = load<W>(dy + row * F + column);
  Values<W> d_gate;
  Values<W> d_up;
#pragma unroll
  for (int k = 0; k < W; ++k) {
    const float g = gate.at[k];
    const float e = bounded_exp_minus<T>(g);
    const float s = divide_for<T>(1.0F, 1.0F + e);
    d_gate.at[k] = d.at[k] * up.at[k] * __fmaf_rn(g, (e * s) * s, s);
    d_up.at[k] = d.at[k] * (g * s);
  }
  store<W>(d_gate_up + at, d_gate);
  store<W>(d_gate_up + at + F, d_up);
}

}  // namespace

void CudaOps::exec(const GeluFwd& a, const Tensor& /*workspace*/) {
  with_type(a.x.dtype, GeluFwd::kName, [&](auto element) {
    using T = decltype(element);
    map(stream_, are_aligned(a.x, a.y), Gelu<T>{}, a.x.count(), a.y.ptr<T>(), a.x.ptr<const T>());
  });
  check_launch(GeluFwd::kName);
}

void CudaOps::exec(const GeluBwd& a, const Tensor& /*workspace*/) {
  with_type(a.x.dtype, GeluBwd::kName, [&](auto element) {
    using T = decltype(element);
    map(stream_, are_aligned(a.x, a.dy, a.dx), GeluGradient<T>{}, a.x.count(), a.dx.ptr<T>(),
        a.dy.ptr<const T>(), a.x.ptr<const T>());
  });
  check_launch(GeluBwd::kName);
}

void CudaOps::exec(const SwigluFwd& a, const Tensor& /*workspace*/) {
  const std::int64_t rows = a.y.shape[0];
  const std::int64_t F = a.y.shape[1];
  if (a.y.count() == 0) return;
  with_type(a.y.dtype, SwigluFwd::kName, [&](auto element) {
    using T = decltype(element);
    with_width(F % kPack == 0 && are_aligned(a.y, a.gate_up), [&](auto width) {
      constexpr int W = decltype(width)::value;
      swiglu_kernel<W><<<blocks_for(rows * F, kThreads * W), kThreads, 0, stream_>>>(
          rows, F, a.y.ptr<T>(), a.gate_up.ptr<const T>());
    });
  });
  check_launch(SwigluFwd::kName);
}

void CudaOps::exec(const SwigluBwd& a, const Tensor& /*workspace*/) {
  const std::int64_t rows = a.dy.shape[0];
  const std::int64_t F = a.dy.shape[1];
  if (a.dy.count() == 0) return;
  with_type(a.dy.dtype, SwigluBwd::kName, [&](auto element) {
    using T = decltype(element);
    with_width(F % kPack == 0 && are_aligned(a.dy, a.gate_up, a.d_gate_up), [&](auto width) {
      constexpr int W = decltype(width)::value;
      swiglu_gradient_kernel<W><<<blocks_for(rows * F, kThreads * W), kThreads, 0, stream_>>>(
          rows, F, a.d_gate_up.ptr<T>(), a.dy.ptr<const T>(), a.gate_up.ptr<const T>());
    });
  });
  check_launch(SwigluBwd::kName);
}

}  // namespace orthant::cuda
