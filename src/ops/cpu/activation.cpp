// GELU and SwiGLU through the logistic function, which loses no digits where tanh is near -1:
// x/2 (1 + tanh u) = x / (1 + e^(-2u)).
#include "ops/cpu/backend.h"
#include "ops/cpu/parallel.h"

namespace orthant::cpu::ORTHANT_LEVEL {
namespace {

// e^(-x), below the square root of the largest float, so that no product of two is infinite.
inline Floats bounded_exp_minus(Floats x) {
  return exp(min(splat(43.0F), zero() - x));
}

inline constexpr float kTwiceRoot = 1.5957691216057308F;  // 2 sqrt(2 / pi)
inline constexpr float kTwiceCubic = 1.5957691216057308F * 0.044715F;

inline Floats gelu(Floats x) {
  const Floats u = x * fma(x * x, splat(kTwiceCubic), splat(kTwiceRoot));
  return x / (splat(1) + bounded_exp_minus(u));
}

inline Floats gelu_slope(Floats x) {
  const Floats square = x * x;
  const Floats u = x * fma(square, splat(kTwiceCubic), splat(kTwiceRoot));
  const Floats du = fma(square, splat(3 * kTwiceCubic), splat(kTwiceRoot));
  const Floats e = bounded_exp_minus(u);
  const Floats s = splat(1) / (splat(1) + e);
  // s + x s (1 - s) u', with 1 - s = e s.
  return fma(x * du, (e * s) * s, s);
}

}  // namespace

void CpuOps::exec(const GeluFwd& a, const Tensor& /*workspace*/) {
  with_type(a.x.dtype, GeluFwd::kName, [&](auto element) {
    using T = decltype(element);
    const T* x = a.x.ptr<const T>();
    T* y = a.y.ptr<T>();
    for_shares(num_threads_, a.x.count(), 64, 4 * a.x.bytes(),
               [&](std::int64_t first, std::int64_t last) {
                 for_vectors(last - first, [&](std::int64_t i, auto lanes) {
                   store(y + first + i, gelu(load(x + first + i, lanes)), lanes);
                 });
               });
  });
}

void CpuOps::exec(const GeluBwd& a, const Tensor& /*workspace*/) {
  with_type(a.x.dtype, GeluBwd::kName, [&](auto element) {
    using T = decltype(element);
    const T* x = a.x.ptr<const T>();
    const T* dy = a.dy.ptr<const T>();
    T* dx = a.dx.ptr<T>();
    for_shares(num_threads_, a.x.count(), 64, 4 * a.x.bytes(),
               [&](std::int64_t first, std::int64_t last) {
                 for_vectors(last - first, [&](std::int64_t i, auto lanes) {
                   const Floats d = load(dy + first + i, lanes);
                   store(dx + first + i, d * gelu_slope(load(x + first + i, lanes)), lanes);
                 });
               });
  });
}

void CpuOps::exec(const SwigluFwd& a, const Tensor& /*workspace*/) {
  const std::int64_t F = a.y.shape[1];
  with_type(a.y.dtype, SwigluFwd::kName, [&](auto element) {
    using T = decltype(element);
    for_shares(num_threads_, a.y.shape[0], 1, 4 * a.gate_up.bytes(),
               [&](std::int64_t first, std::int64_t last) {
                 for (std::int64_t t = first; t < last; ++t) {
                   const T* gate = a.gate_up.ptr<const T>() + t * 2 * F;
                   T* y = a.y.ptr<T>() + t * F;
                   for_vectors(F, [&](std::int64_t i, auto lanes) {
                     const Floats g = load(gate + i, lanes);
                     const Floats silu = g / (splat(1) + bounded_exp_minus(g));
                     store(y + i, silu * load(gate + F + i, lanes), lanes);
                   });
                 }
               });
  });
}

void CpuOps::exec(const SwigluBwd& a, const Tensor& /*workspace*/) {
  const std::int64_t F = a.dy.shape[1];
  with_type(a.dy.dtype, SwigluBwd::kName, [&](auto element) {
    using T = decltype(element);
    for_shares(num_threads_, a.dy.shape[0], 1, 4 * a.gate_up.bytes(),
               [&](std::int64_t first, std::int64_t last) {
                 for (std::int64_t t = first; t < last; ++t) {
                   const T* gate = a.gate_up.ptr<const T>() + t * 2 * F;
                   const T* dy = a.dy.ptr<const T>() + t * F;
                   T* d_gate = a.d_gate_up.ptr<T>() + t * 2 * F;
                   for_vectors(F, [&](std::int64_t i, auto lanes) {
                     const Floats g = load(gate + i, lanes);
                     const Floats up = load(gate + F + i, lanes);
                     const Floats d = load(dy + i, lanes);
                     const Floats e = bounded_exp_minus(g);
                     const Floats s = splat(1) / (splat(1) + e);
                     store(d_gate + i, d * up * fma(g, (e * s) * s, s), lanes);
                     store(d_gate + F + i, d * (g * s), lanes);
                   });
                 }
               });
  });
}

}  // namespace orthant::cpu::ORTHANT_LEVEL
