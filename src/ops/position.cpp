#include "ops/position.h"

#include "ops/expect.h"

namespace orthant {

void check(const Rotary& a) {
  Expect expect(Rotary::kName, Expect::Role::kOut, "qkv", a.qkv, 2);
  expect.anchor_is_float();
  ORTHANT_CHECK(a.H > 0 && a.G > 0 && a.H % a.G == 0,
                "rotary: H={}, G={}; H must be a multiple of G, both positive", a.H, a.G);
  const std::int64_t T = a.qkv.shape[0];
  const std::int64_t num_heads = a.H + 2 * a.G;
  ORTHANT_CHECK(a.qkv.shape[1] % (2 * num_heads) == 0,
                "rotary: qkv is {}, H={}, G={}; its rows must be H+2G = {} heads of even width",
                a.qkv.shape.text(), a.H, a.G, num_heads);
  expect.in("positions", a.positions, {T}, DType::kI32);
  expect.in("inv_freq", a.inv_freq, {a.qkv.shape[1] / num_heads / 2}, DType::kF32);
  expect.no_overlap({});
}

// A pair costs four products and two additions; value heads are not touched.
Cost cost(const Rotary& a) {
  const double part = static_cast<double>(a.H + a.G) / static_cast<double>(a.H + 2 * a.G);
  return {.flops = 3 * part * static_cast<double>(a.qkv.count()),
          .bytes = 2 * part * static_cast<double>(a.qkv.bytes()) + bytes_of(a.reads())};
}

std::int64_t workspace_bytes(const Rotary& /*a*/) {
  return 0;
}

}  // namespace orthant
