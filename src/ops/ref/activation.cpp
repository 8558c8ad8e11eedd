#include <cmath>

#include "ops/ref/doubles.h"
#include "ops/ref/ref_ops.h"

namespace orthant {
namespace {

constexpr double kSqrt2OverPi = 0.7978845608028654;
constexpr double kCubic = 0.044715;

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

}  // namespace

void RefOps::exec(const GeluFwd& a, const Tensor& /*workspace*/) {
  Doubles x(a.x);
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const double u = kSqrt2OverPi * (x[i] + kCubic * x[i] * x[i] * x[i]);
    x[i] = x[i] / 2 * (1 + std::tanh(u));
  }
  x.store(a.y);
}

void RefOps::exec(const GeluBwd& a, const Tensor& /*workspace*/) {
  const Doubles x(a.x);
  Doubles d(a.dy);
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const double t = std::tanh(kSqrt2OverPi * (x[i] + kCubic * x[i] * x[i] * x[i]));
    const double du = kSqrt2OverPi * (1 + 3 * kCubic * x[i] * x[i]);
    d[i] *= (1 + t) / 2 + x[i] / 2 * (1 - t * t) * du;
  }
  d.store(a.dx);
}

void RefOps::exec(const SwigluFwd& a, const Tensor& /*workspace*/) {
  const std::int64_t T = a.y.shape[0];
  const std::int64_t F = a.y.shape[1];
  const Doubles gate_up(a.gate_up);
  Doubles y(T * F);
  for (std::int64_t t = 0; t < T; ++t) {
    for (std::int64_t f = 0; f < F; ++f) {
      const double gate = gate_up[t * 2 * F + f];
      const double up = gate_up[t * 2 * F + F + f];
      y[t * F + f] = gate * sigmoid(gate) * up;
    }
  }
  y.store(a.y);
}

void RefOps::exec(const SwigluBwd& a, const Tensor& /*workspace*/) {
  const std::int64_t T = a.dy.shape[0];
  const std::int64_t F = a.dy.shape[1];
  const Doubles gate_up(a.gate_up);
  const Doubles dy(a.dy);
  Doubles d_gate_up(T * 2 * F);
  for (std::int64_t t = 0; t < T; ++t) {
    for (std::int64_t f = 0; f < F; ++f) {
      const double gate = gate_up[t * 2 * F + f];
      const double up = gate_up[t * 2 * F + F + f];
      const double s = sigmoid(gate);
      d_gate_up[t * 2 * F + f] = dy[t * F + f] * up * s * (1 + gate * (1 - s));
      d_gate_up[t * 2 * F + F + f] = dy[t * F + f] * gate * s;
    }
  }
  d_gate_up.store(a.d_gate_up);
}

}  // namespace orthant
