#include <cmath>

#include "ops/ref/doubles.h"
#include "ops/ref/ref_ops.h"

namespace orthant {

void RefOps::exec(const Rotary& a, const Tensor& /*workspace*/) {
  const std::int64_t T = a.qkv.shape[0];
  const std::int64_t width = a.qkv.shape[1];
  const std::int64_t D = width / (a.H + 2 * a.G);
  const auto* positions = a.positions.ptr<const std::int32_t>();
  const auto* inv_freq = a.inv_freq.ptr<const float>();
  const double sign = a.direction == Rotate::kForward ? 1 : -1;
  Doubles qkv(a.qkv);
  for (std::int64_t t = 0; t < T; ++t) {
    for (std::int64_t i = 0; i < D / 2; ++i) {
      const float angle = static_cast<float>(positions[t]) * inv_freq[i];
      const double cos = static_cast<float>(std::cos(static_cast<double>(angle)));
      const double sin = sign * static_cast<float>(std::sin(static_cast<double>(angle)));
      for (std::int64_t head = 0; head < a.H + a.G; ++head) {
        double& first = qkv[t * width + head * D + i];
        double& second = qkv[t * width + head * D + i + D / 2];
        const double rotated = first * cos - second * sin;
        second = second * cos + first * sin;
        first = rotated;
      }
    }
  }
  qkv.store(a.qkv);
}

}  // namespace orthant
