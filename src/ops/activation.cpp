#include "ops/activation.h"

#include "ops/expect.h"

namespace orthant {

void check(const GeluFwd& a) {
  Expect expect(GeluFwd::kName, Expect::Role::kIn, "x", a.x, 2);
  expect.anchor_is_float();
  expect.out("y", a.y, a.x.shape, a.x.dtype);
  expect.no_overlap({});
}

void check(const GeluBwd& a) {
  Expect expect(GeluBwd::kName, Expect::Role::kIn, "x", a.x, 2);
  expect.anchor_is_float();
  expect.in("dy", a.dy, a.x.shape, a.x.dtype);
  expect.out("dx", a.dx, a.x.shape, a.x.dtype);
  expect.no_overlap({{a.dx, a.x}, {a.dx, a.dy}});
}

void check(const SwigluFwd& a) {
  Expect expect(SwigluFwd::kName, Expect::Role::kIn, "gate_up", a.gate_up, 2);
  expect.anchor_is_float();
  ORTHANT_CHECK(a.gate_up.shape[1] % 2 == 0, "swiglu_fwd: gate_up is {}; its width must be even",
                a.gate_up.shape.text());
  expect.out("y", a.y, {a.gate_up.shape[0], a.gate_up.shape[1] / 2}, a.gate_up.dtype);
  expect.no_overlap({});
}

void check(const SwigluBwd& a) {
  Expect expect(SwigluBwd::kName, Expect::Role::kIn, "gate_up", a.gate_up, 2);
  expect.anchor_is_float();
  ORTHANT_CHECK(a.gate_up.shape[1] % 2 == 0, "swiglu_bwd: gate_up is {}; its width must be even",
                a.gate_up.shape.text());
  expect.in("dy", a.dy, {a.gate_up.shape[0], a.gate_up.shape[1] / 2}, a.gate_up.dtype);
  expect.out("d_gate_up", a.d_gate_up, a.gate_up.shape, a.gate_up.dtype);
  expect.no_overlap({{a.d_gate_up, a.gate_up}});
}

// Flops count each addition, product, quotient and exponential of the formula.
Cost cost(const GeluFwd& a) {
  return {.flops = 9 * static_cast<double>(a.x.count()), .bytes = bytes_moved(a)};
}

Cost cost(const GeluBwd& a) {
  return {.flops = 18 * static_cast<double>(a.x.count()), .bytes = bytes_moved(a)};
}

Cost cost(const SwigluFwd& a) {
  return {.flops = 5 * static_cast<double>(a.y.count()), .bytes = bytes_moved(a)};
}

Cost cost(const SwigluBwd& a) {
  return {.flops = 11 * static_cast<double>(a.dy.count()), .bytes = bytes_moved(a)};
}

std::int64_t workspace_bytes(const GeluFwd& /*a*/) {
  return 0;
}
std::int64_t workspace_bytes(const GeluBwd& /*a*/) {
  return 0;
}
std::int64_t workspace_bytes(const SwigluFwd& /*a*/) {
  return 0;
}
std::int64_t workspace_bytes(const SwigluBwd& /*a*/) {
  return 0;
}

}  // namespace orthant
