#include "ops/linear.h"

#include <array>

#include "ops/expect.h"

namespace orthant {
namespace {

struct Sizes {
  std::int64_t T, I, O;
};

double product_flops(const Sizes& n) {
  return 2.0 * static_cast<double>(n.T) * static_cast<double>(n.I) * static_cast<double>(n.O);
}

Sizes sizes_of(const LinearFwd& a) {
  return {.T = a.x.shape[0], .I = a.x.shape[1], .O = a.w.shape[0]};
}

Sizes sizes_of(const LinearBwdInput& a) {
  return {.T = a.dy.shape[0], .I = a.w.shape[1], .O = a.dy.shape[1]};
}

Sizes sizes_of(const LinearBwdWeight& a) {
  return {.T = a.x.shape[0], .I = a.x.shape[1], .O = a.dy.shape[1]};
}

}  // namespace

void check(const LinearFwd& a) {
  Expect expect(LinearFwd::kName, Expect::Role::kIn, "x", a.x, 2);
  expect.anchor_is_float();
  ORTHANT_CHECK(a.w.shape.rank() == 2, "linear_fwd: w is {}; it must have 2 dimensions",
                a.w.shape.text());
  const auto [T, I, O] = sizes_of(a);
  expect.in("w", a.w, {O, I}, a.x.dtype);
  expect.out("y", a.y, {T, O}, a.x.dtype);
  if (a.b.present()) expect.in("b", a.b, {O}, a.x.dtype);
  if (a.gelu.present()) expect.out("gelu", a.gelu, {T, O}, a.x.dtype);
  expect.no_overlap({});
}

void check(const LinearBwdInput& a) {
  Expect expect(LinearBwdInput::kName, Expect::Role::kIn, "dy", a.dy, 2);
  expect.anchor_is_float();
  ORTHANT_CHECK(a.w.shape.rank() == 2, "linear_bwd_input: w is {}; it must have 2 dimensions",
                a.w.shape.text());
  const auto [T, I, O] = sizes_of(a);
  expect.in("w", a.w, {O, I}, a.dy.dtype);
  expect.out("dx", a.dx, {T, I}, a.dy.dtype);
  if (a.gelu_x.present()) expect.in("gelu_x", a.gelu_x, {T, I}, a.dy.dtype);
  expect.no_overlap({});
}

void check(const LinearBwdWeight& a) {
  Expect expect(LinearBwdWeight::kName, Expect::Role::kIn, "x", a.x, 2);
  expect.anchor_is_float();
  ORTHANT_CHECK(a.dy.shape.rank() == 2, "linear_bwd_weight: dy is {}; it must have 2 dimensions",
                a.dy.shape.text());
  const auto [T, I, O] = sizes_of(a);
  expect.in("dy", a.dy, {T, O}, a.x.dtype);
  expect.out("dw", a.dw, {O, I}, wide(a.x.dtype));
  if (a.db.present()) expect.out("db", a.db, {O}, wide(a.x.dtype));
  expect.no_overlap({});
}

Cost cost(const LinearFwd& a) {
  const double bias = a.b.present() ? static_cast<double>(a.y.count()) : 0;
  return {.flops = product_flops(sizes_of(a)) + bias,
          .bytes = bytes_moved(a),
          .depth = static_cast<double>(sizes_of(a).I),
          .activation_bytes = bytes_of(std::array{a.gelu})};
}

Cost cost(const LinearBwdInput& a) {
  return {.flops = product_flops(sizes_of(a)),
          .bytes = bytes_moved(a),
          .depth = static_cast<double>(sizes_of(a).O),
          .activation_bytes = bytes_of(std::array{a.gelu_x})};
}

Cost cost(const LinearBwdWeight& a) {
  const double bias = a.db.present() ? static_cast<double>(a.dy.count()) : 0;
  return {.flops = product_flops(sizes_of(a)) + bias,
          .bytes = bytes_moved(a) + bytes_of(a.writes()),
          .depth = static_cast<double>(sizes_of(a).T)};
}

std::int64_t workspace_bytes(const LinearFwd& /*a*/) {
  return 0;
}

std::int64_t workspace_bytes(const LinearBwdInput& /*a*/) {
  return 0;
}

std::int64_t workspace_bytes(const LinearBwdWeight& /*a*/) {
  return 0;
}

}  // namespace orthant
