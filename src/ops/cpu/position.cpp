// Rotary positions. Sine and cosine of an angle are computed once for all heads of a token, in
// double: the angle less the nearest multiple of pi/2, then fdlibm's polynomials.
#include <algorithm>
#include <cmath>

#include "ops/cpu/backend.h"
#include "ops/cpu/parallel.h"

namespace orthant::cpu::ORTHANT_LEVEL {
namespace {

struct SinCos {
  Doubles sin;
  Doubles cos;
};

// For |x| below 2^30.
SinCos sin_cos(Doubles x) {
  // Adding 1.5 * 2^52 rounds to an integer and makes it the low bits.
  const Doubles shift = splat_double(0x1.8p52);
  const Doubles shifted = x * splat_double(0x1.45f306dc9c883p-1) + shift;
  const Doubles n = shifted - shift;
  // pi/2 in three parts; n times the first two is exact up to 2^20, and fma keeps the rest.
  Doubles r = negative_fma(n, splat_double(0x1.921fb54442d18p+0), x);
  r = negative_fma(n, splat_double(0x1.1a62633145c07p-54), r);
  r = negative_fma(n, splat_double(-0x1.f1976b7ed8fbcp-110), r);
  const Doubles z = r * r;
  const auto step = [&](Doubles sum, double c) {
    return fma(sum, z, splat_double(c));
  };
  Doubles s = splat_double(1.58969099521155010221e-10);
  s = step(s, -2.50507602534068634195e-08);
  s = step(s, 2.75573137070700676789e-06);
  s = step(s, -1.98412698298579493134e-04);
  s = step(s, 8.33333333332248946124e-03);
  s = step(s, -1.66666666666666324348e-01);
  s = fma(s * z, r, r);
  Doubles c = splat_double(-1.13596475577881948265e-11);
  c = step(c, 2.08757232129817482790e-09);
  c = step(c, -2.75573143513906633035e-07);
  c = step(c, 2.48015872894767294178e-05);
  c = step(c, -1.38888888888741095749e-03);
  c = step(c, 4.16666666666666019037e-02);
  c = fma(c, z * z, negative_fma(z, splat_double(0.5), splat_double(1)));
  // Quadrant n mod 4: odd ones swap the two, and signs follow.
  const Longs quadrant = (Longs)shifted;
  const Longs swaps = 0U - (quadrant & 1U);
  const Longs s_bits = (Longs)s;
  const Longs c_bits = (Longs)c;
  const Longs sin_sign = (quadrant >> 1) << 63;
  const Longs cos_sign = sin_sign ^ (quadrant << 63);
  return {.sin = (Doubles)(((s_bits & ~swaps) | (c_bits & swaps)) ^ sin_sign),
          .cos = (Doubles)(((c_bits & ~swaps) | (s_bits & swaps)) ^ cos_sign)};
}

constexpr std::int64_t kPairs = 128;  // pairs of a head that share one table

struct Table {
  alignas(64) float cos[kPairs];
  alignas(64) float sin[kPairs];
};

// Of the angles position * inv_freq[0..count-1], each an f32 product.
void fill_table(float position, const float* inv_freq, std::int64_t count, Rotate direction,
                Table& table) {
  const Ints sign = splat_word(direction == Rotate::kForward ? 0 : 0x80000000U);
  for_vectors(count, [&](std::int64_t i, auto lanes) {
    const Floats angle = splat(position) * load(inv_freq + i, lanes);
    const SinCos low = sin_cos(low_half(angle));
    const SinCos high = sin_cos(high_half(angle));
    store(table.sin + i, floats_of(bits_of(join(low.sin, high.sin)) ^ sign));
    store(table.cos + i, join(low.cos, high.cos));
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
        const Floats x = load(low + i, lanes);
        const Floats y = load(high + i, lanes);
        const Floats cos = load(table.cos + i);
        const Floats sin = load(table.sin + i);
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

}  // namespace orthant::cpu::ORTHANT_LEVEL
