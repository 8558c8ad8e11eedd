#include "ops/update.h"

#include "ops/expect.h"

namespace orthant {

void check(const SquaredNorm& a) {
  Expect expect(SquaredNorm::kName, Expect::Role::kIn, "g", a.g, 1);
  expect.anchor_is(a.g.dtype == DType::kBF16 ? DType::kBF16 : DType::kF32);
  expect.out("sum", a.sum, {kNormLimbs}, DType::kI64);
  ORTHANT_CHECK(a.start >= 0 && a.start < kNormBlock,
                "squared_norm: start={}; a block has the places 0..{}", a.start, kNormBlock - 1);
  expect.no_overlap({});
}

void check(const ClipFactor& a) {
  Expect expect(ClipFactor::kName, Expect::Role::kIn, "sum", a.sum, 1);
  expect.anchor_is(DType::kI64);
  ORTHANT_CHECK(a.sum.shape[0] == kNormLimbs, "clip_factor: sum is {}; it must be [{}]",
                a.sum.shape.text(), kNormLimbs);
  expect.out_step_state(a.step_state);
  expect.no_overlap({});
}

void check(const AdamW& a) {
  Expect expect(AdamW::kName, Expect::Role::kOut, "master", a.master, 1);
  expect.anchor_is(a.is_split() ? DType::kI16 : DType::kF32);
  const Shape& N = a.master.shape;
  ORTHANT_CHECK(a.m.dtype == DType::kF32 || a.m.dtype == DType::kBF16,
                "adamw: m is {}; it must be f32 or bf16", name_of(a.m.dtype));
  expect.out("m", a.m, N, a.m.dtype);
  expect.out("v", a.v, N, a.m.dtype);
  expect.in("grad", a.grad, N, a.grad.dtype == DType::kBF16 ? DType::kBF16 : DType::kF32);
  expect.in_step_state(a.step_state);
  ORTHANT_CHECK(!a.is_split() || (a.value.present() && a.value.dtype == DType::kBF16),
                "adamw: master is i16, value is {}; beside a split master it must be bf16",
                a.value.present() ? name_of(a.value.dtype) : "absent");
  if (a.value.present()) {
    const DType type = a.value.dtype;
    ORTHANT_CHECK(type == DType::kBF16 || type == DType::kF16,
                  "adamw: value is {}; it must be bf16 or f16, and absent when master is the value",
                  name_of(type));
    expect.out("value", a.value, N, type);
  }
  ORTHANT_CHECK(a.beta1 >= 0 && a.beta1 < 1 && a.beta2 >= 0 && a.beta2 < 1,
                "adamw: beta1={}, beta2={}; both must lie in [0, 1)", a.beta1, a.beta2);
  ORTHANT_CHECK(a.eps >= 0 && a.weight_decay >= 0,
                "adamw: eps={}, weight_decay={}; neither may be negative", a.eps, a.weight_decay);
  expect.no_overlap({});
}

Cost cost(const SquaredNorm& a) {
  return {.flops = 2 * static_cast<double>(a.g.count()), .bytes = bytes_moved(a)};
}

Cost cost(const ClipFactor& a) {
  return {.flops = 0, .bytes = bytes_moved(a)};
}

// Master and both moments are read and written; so is the value of a split master.
Cost cost(const AdamW& a) {
  const Tensor read = a.is_split() ? a.value : Tensor{};
  return {.flops = 16 * static_cast<double>(a.master.count()),
          .bytes = bytes_moved(a) + bytes_of(std::array{a.master, a.m, a.v, read})};
}

std::int64_t workspace_bytes(const SquaredNorm& /*a*/) {
  return 0;
}
std::int64_t workspace_bytes(const ClipFactor& /*a*/) {
  return 0;
}
std::int64_t workspace_bytes(const AdamW& /*a*/) {
  return 0;
}

}  // namespace orthant
