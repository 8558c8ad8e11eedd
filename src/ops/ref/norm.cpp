#include <cmath>

#include "ops/ref/doubles.h"
#include "ops/ref/ref_ops.h"

namespace orthant {

void RefOps::exec(const NormFwd& a, const Tensor& /*workspace*/) {
  const std::int64_t T = a.x.shape[0];
  const std::int64_t C = a.x.shape[1];
  const bool centers = a.kind == NormKind::kLayerNorm;
  Doubles x(a.x);
  if (a.addend.present()) {
    const Doubles addend(a.addend);
    for (std::int64_t i = 0; i < x.count(); ++i) {
      x[i] += addend[i];
    }
    x.round_to(a.x.dtype);
    x.store(a.sum);
  }
  const Doubles w(a.w);
  const Doubles b(a.b);
  Doubles y(T * C);
  Doubles means(T);
  Doubles rstds(T);
  for (std::int64_t t = 0; t < T; ++t) {
    double mean = 0;
    for (std::int64_t c = 0; centers && c < C; ++c) {
      mean += x[t * C + c] / static_cast<double>(C);
    }
    double variance = 0;
    for (std::int64_t c = 0; c < C; ++c) {
      const double centered = x[t * C + c] - mean;
      variance += centered * centered / static_cast<double>(C);
    }
    const double rstd = 1 / std::sqrt(variance + a.eps);
    for (std::int64_t c = 0; c < C; ++c) {
      y[t * C + c] = (x[t * C + c] - mean) * rstd * w[c] + (centers ? b[c] : 0);
    }
    means[t] = mean;
    rstds[t] = rstd;
  }
  y.store(a.y);
  means.store(a.mean);
  rstds.store(a.rstd);
}

void RefOps::exec(const NormBwd& a, const Tensor& /*workspace*/) {
  const std::int64_t T = a.x.shape[0];
  const std::int64_t C = a.x.shape[1];
  const bool centers = a.kind == NormKind::kLayerNorm;
  const Doubles dy(a.dy);
  const Doubles x(a.x);
  const Doubles w(a.w);
  const Doubles mean(a.mean);
  const Doubles rstd(a.rstd);
  const Doubles d_residual(a.d_residual);
  Doubles dx(T * C);
  Doubles dw(C);
  Doubles db(C);
  for (std::int64_t t = 0; t < T; ++t) {
    // y = n * w + b with n = (x - mean) * rstd; g is the gradient of n.
    const auto n = [&](std::int64_t c) {
      return (x[t * C + c] - (centers ? mean[t] : 0)) * rstd[t];
    };
    double mean_g = 0;
    double mean_gn = 0;
    for (std::int64_t c = 0; c < C; ++c) {
      const double g = dy[t * C + c] * w[c];
      mean_g += centers ? g / static_cast<double>(C) : 0;
      mean_gn += g * n(c) / static_cast<double>(C);
      dw[c] += dy[t * C + c] * n(c);
      db[c] += dy[t * C + c];
    }
    for (std::int64_t c = 0; c < C; ++c) {
      const double g = dy[t * C + c] * w[c];
      dx[t * C + c] = rstd[t] * (g - mean_g - n(c) * mean_gn) +
                      (d_residual.empty() ? 0 : d_residual[t * C + c]);
    }
  }
  dx.store(a.dx);
  dw.store(a.dw);
  db.store(a.db);
}

}  // namespace orthant
