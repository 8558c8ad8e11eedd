#include "ops/ref/doubles.h"
#include "ops/ref/ref_ops.h"

namespace orthant {

void RefOps::exec(const LinearFwd& a, const Tensor& workspace) {
  const std::int64_t T = a.x.shape[0];
  const std::int64_t I = a.x.shape[1];
  const std::int64_t O = a.w.shape[0];
  const Doubles x(a.x);
  const Doubles w(a.w);
  const Doubles b(a.b);
  Doubles y(T * O);
  for (std::int64_t t = 0; t < T; ++t) {
    for (std::int64_t o = 0; o < O; ++o) {
      double sum = 0;
      for (std::int64_t i = 0; i < I; ++i) {
        sum += x[t * I + i] * w[o * I + i];
      }
      y[t * O + o] = sum + (b.empty() ? 0 : b[o]);
    }
  }
  y.store(a.y);
  if (a.gelu.present()) exec(GeluFwd{.y = a.gelu, .x = a.y}, workspace);
}

void RefOps::exec(const LinearBwdInput& a, const Tensor& workspace) {
  const std::int64_t T = a.dy.shape[0];
  const std::int64_t O = a.dy.shape[1];
  const std::int64_t I = a.w.shape[1];
  const Doubles dy(a.dy);
  const Doubles w(a.w);
  Doubles dx(T * I);
  for (std::int64_t t = 0; t < T; ++t) {
    for (std::int64_t o = 0; o < O; ++o) {
      for (std::int64_t i = 0; i < I; ++i) {
        dx[t * I + i] += dy[t * O + o] * w[o * I + i];
      }
    }
  }
  dx.store(a.dx);
  if (a.gelu_x.present()) exec(GeluBwd{.dx = a.dx, .dy = a.dx, .x = a.gelu_x}, workspace);
}

void RefOps::exec(const LinearBwdWeight& a, const Tensor& /*workspace*/) {
  const std::int64_t T = a.x.shape[0];
  const std::int64_t I = a.x.shape[1];
  const std::int64_t O = a.dy.shape[1];
  const Doubles dy(a.dy);
  const Doubles x(a.x);
  Doubles dw(a.dw);
  Doubles db(a.db);
  for (std::int64_t t = 0; t < T; ++t) {
    for (std::int64_t o = 0; o < O; ++o) {
      for (std::int64_t i = 0; i < I; ++i) {
        dw[o * I + i] += dy[t * O + o] * x[t * I + i];
      }
      if (!db.empty()) db[o] += dy[t * O + o];
    }
  }
  dw.store(a.dw);
  db.store(a.db);
}

}  // namespace orthant
