// Rotary positions. Sine and cosine of an angle are computed once for all heads of a token, four
// angles at a time in double: the angle less the nearest multiple of pi/2, then fdlibm's
// polynomials.
#include <algorithm>
#include <cmath>

#include "ops/cpu/backend.h"
#include "ops/cpu/parallel.h"

namespace orthant::cpu {
namespace {

using D4 = __m256d;

struct SinCos {
  D4 sin;
  D4 cos;
};

// For |x| below 2^30.
SinCos sin_cos(D4 x) {
  const D4 n = _mm256_round_pd(x * _mm256_set1_pd(0x1.45f306dc9c883p-1),
                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  // pi/2 in three parts; n times the first two is exact up to 2^20, and fma keeps the rest.
  D4 r = _mm256_fnmadd_pd(n, _mm256_set1_pd(0x1.921fb54442d18p+0), x);
  r = _mm256_fnmadd_pd(n, _mm256_set1_pd(0x1.1a62633145c07p-54), r);
  r = _mm256_fnmadd_pd(n, _mm256_set1_pd(-0x1.f1976b7ed8fbcp-110), r);
  const D4 z = r * r;
  const auto step = [&](D4 sum, double c) {
    return _mm256_fmadd_pd(sum, z, _mm256_set1_pd(c));
  };
  D4 s = _mm256_set1_pd(1.58969099521155010221e-10);
  s = step(s, -2.50507602534068634195e-08);
  s = step(s, 2.75573137070700676789e-06);
  s = step(s, -1.98412698298579493134e-04);
  s = step(s, 8.33333333332248946124e-03);
  s = step(s, -1.66666666666666324348e-01);
  s = _mm256_fmadd_pd(s * z, r, r);
  D4 c = _mm256_set1_pd(-1.13596475577881948265e-11);
  c = step(c, 2.08757232129817482790e-09);
  c = step(c, -2.75573143513906633035e-07);
  c = step(c, 2.48015872894767294178e-05);
  c = step(c, -1.38888888888741095749e-03);
  c = step(c, 4.16666666666666019037e-02);
  c = _mm256_fmadd_pd(c, z * z, _mm256_fnmadd_pd(z, _mm256_set1_pd(0.5), _mm256_set1_pd(1)));
  // Quadrant n mod 4: odd ones swap the two, and signs follow.
  const I8 quadrant = _mm256_cvtepi32_epi64(_mm256_cvtpd_epi32(n));
  const D4 swap = _mm256_castsi256_pd(_mm256_slli_epi64(quadrant, 63));
  const D4 sin_sign = _mm256_castsi256_pd(_mm256_slli_epi64(_mm256_srli_epi64(quadrant, 1), 63));
  const D4 cos_sign = _mm256_xor_pd(swap, sin_sign);
  const D4 sign_bit = _mm256_set1_pd(-0.0);
  return {.sin = _mm256_xor_pd(_mm256_blendv_pd(s, c, swap), _mm256_and_pd(sin_sign, sign_bit)),
          .cos = _mm256_xor_pd(_mm256_blendv_pd(c, s, swap), _mm256_and_pd(cos_sign, sign_bit))};
}

constexpr std::int64_t kPairs = 128;  // pairs of a head that share one table

struct Table {
  alignas(32) float cos[kPairs];
  alignas(32) float sin[kPairs];
};

// Of the angles position * inv_freq[0..count-1], each an f32 product.
void fill_table(float position, const float* inv_freq, std::int64_t count, Rotate direction,
                Table& table) {
  const F8 sign = direction == Rotate::kForward ? zero() : splat(-0.0F);
  for_vectors(count, [&](std::int64_t i, auto lanes) {
    const F8 angle = splat(position) * load(inv_freq + i, lanes);
    const SinCos low = sin_cos(_mm256_cvtps_pd(_mm256_castps256_ps128(angle)));
    const SinCos high = sin_cos(_mm256_cvtps_pd(_mm256_extractf128_ps(angle, 1)));
    const F8 sin = _mm256_set_m128(_mm256_cvtpd_ps(high.sin), _mm256_cvtpd_ps(low.sin));
    const F8 cos = _mm256_set_m128(_mm256_cvtpd_ps(high.cos), _mm256_cvtpd_ps(low.cos));
    store(table.sin + i, _mm256_xor_ps(sin, sign));
    store(table.cos + i, cos);
  });
}

template <class T>
void rotate_token(const Rotary& a, std::int64_t t) {
  const std::int64_t width = a.qkv.shape[1];
  const std::int64_t D = width / (a.H + 2 * a.G);
  const auto position = static_cast<float>(a.positions.ptr<const std::int32_t>()[t]);
  Table table;
  for (std::int64_t first = 0; first < D / 2; first += kPairs) {
    const std::int64_t count = std::min(kPairs, D / 2 - first);
    fill_table(position, a.inv_freq.ptr<const float>() + first, count, a.direction, table);
    for (std::int64_t head = 0; head < a.H + a.G; ++head) {
      T* low = a.qkv.ptr<T>() + t * width + head * D + first;
      T* high = low + D / 2;
      for_vectors(count, [&](std::int64_t i, auto lanes) {
        const F8 x = load(low + i, lanes);
        const F8 y = load(high + i, lanes);
        const F8 cos = load(table.cos + i);
        const F8 sin = load(table.sin + i);
        store(low + i, negative_fma(y, sin, x * cos), lanes);
        store(high + i, fma(x, sin, y * cos), lanes);
      });
    }
  }
}

}  // namespace

void CpuOps::exec(const Rotary& a, const Tensor& /*workspace*/) {
  with_type(a.qkv.dtype, Rotary::kName, [&](auto element) {
    for_shares(num_threads_, a.qkv.shape[0], 1, 2 * a.qkv.bytes(),
               [&](std::int64_t first, std::int64_t last) {
                 for (std::int64_t t = first; t < last; ++t) {
                   rotate_token<decltype(element)>(a, t);
                 }
               });
  });
}

}  // namespace orthant::cpu
