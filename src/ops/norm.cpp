#include "ops/norm.h"

#include "ops/expect.h"

namespace orthant {
namespace {

void expect_kind(const Expect& expect, NormKind kind, const Tensor& mean, const Tensor& b,
                 std::string_view b_name) {
  if (kind == NormKind::kLayerNorm) return;
  expect.absent("mean", mean, "RMSNorm has none");
  expect.absent(b_name, b, "RMSNorm has none");
}

}  // namespace

void check(const NormFwd& a) {
  Expect expect(NormFwd::kName, Expect::Role::kIn, "x", a.x, 2);
  expect.anchor_is_float();
  const DType type = a.x.dtype;
  const std::int64_t T = a.x.shape[0];
  const std::int64_t C = a.x.shape[1];
  expect.in("w", a.w, {C}, type);
  expect.out("y", a.y, {T, C}, type);
  expect.out("rstd", a.rstd, {T}, wide(type));
  expect_kind(expect, a.kind, a.mean, a.b, "b");
  if (a.kind == NormKind::kLayerNorm) {
    expect.in("b", a.b, {C}, type);
    expect.out("mean", a.mean, {T}, wide(type));
  }
  if (a.addend.present()) {
    expect.in("addend", a.addend, {T, C}, type);
    expect.out("sum", a.sum, {T, C}, type);
  } else {
    expect.absent("sum", a.sum, "there is no addend");
  }
  ORTHANT_CHECK(C > 0 && a.eps >= 0,
                "norm_fwd: x is {}, eps is {}; rows must not be empty and eps "
                "not negative",
                a.x.shape.text(), a.eps);
  expect.no_overlap({{a.sum, a.x}});
}

void check(const NormBwd& a) {
  Expect expect(NormBwd::kName, Expect::Role::kIn, "x", a.x, 2);
  expect.anchor_is_float();
  const DType type = a.x.dtype;
  const std::int64_t T = a.x.shape[0];
  const std::int64_t C = a.x.shape[1];
  expect.in("dy", a.dy, {T, C}, type);
  expect.in("w", a.w, {C}, type);
  expect.in("rstd", a.rstd, {T}, wide(type));
  expect.out("dx", a.dx, {T, C}, type);
  expect.out("dw", a.dw, {C}, wide(type));
  expect_kind(expect, a.kind, a.mean, a.db, "db");
  if (a.kind == NormKind::kLayerNorm) {
    expect.in("mean", a.mean, {T}, wide(type));
    expect.out("db", a.db, {C}, wide(type));
  }
  if (a.d_residual.present()) expect.in("d_residual", a.d_residual, {T, C}, type);
  ORTHANT_CHECK(C > 0, "norm_bwd: x is {}; rows must not be empty", a.x.shape.text());
  expect.no_overlap({{a.dx, a.x}, {a.dx, a.dy}, {a.dx, a.d_residual}});
}

// Flops count each addition, product and root of an element; a mean costs two more than none.
Cost cost(const NormFwd& a) {
  const double per_element =
      (a.kind == NormKind::kLayerNorm ? 7 : 4) + (a.addend.present() ? 1 : 0);
  return {.flops = per_element * static_cast<double>(a.x.count()), .bytes = bytes_moved(a)};
}

Cost cost(const NormBwd& a) {
  const double per_element =
      (a.kind == NormKind::kLayerNorm ? 14 : 10) + (a.d_residual.present() ? 1 : 0);
  return {.flops = per_element * static_cast<double>(a.x.count()), .bytes = bytes_moved(a)};
}

std::int64_t workspace_bytes(const NormFwd& /*a*/) {
  return 0;
}

std::int64_t workspace_bytes(const NormBwd& a) {
  const std::int64_t num_blocks = (a.x.shape[0] + kNormBwdRows - 1) / kNormBwdRows;
  return num_blocks * a.x.shape[1] * 2 * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace orthant
