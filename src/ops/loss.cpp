#include "ops/loss.h"

#include "ops/expect.h"

namespace orthant {
namespace {

void check_columns(std::string_view op, std::int64_t first_column, std::int64_t valid,
                   const Tensor& logits) {
  ORTHANT_CHECK(first_column >= 0 && valid >= 0 && valid <= logits.shape[1],
                "{}: first_column={}, valid={}, logits is {}; valid must lie in 0..{}", op,
                first_column, valid, logits.shape.text(), logits.shape[1]);
}

}  // namespace

void check(const SoftmaxPart& a) {
  Expect expect(SoftmaxPart::kName, Expect::Role::kIn, "logits", a.logits, 2);
  expect.anchor_is_float();
  const std::int64_t T = a.logits.shape[0];
  check_columns(SoftmaxPart::kName, a.first_column, a.valid, a.logits);
  expect.in("labels", a.labels, {T}, DType::kI32);
  expect.out("part", a.part, {T, 3}, wide(a.logits.dtype));
  expect.no_overlap({});
}

void check(const CrossEntropyFwd& a) {
  Expect expect(CrossEntropyFwd::kName, Expect::Role::kIn, "parts", a.parts, 3);
  const DType type = a.parts.dtype;
  ORTHANT_CHECK(type == wide(type), "cross_entropy_fwd: parts is {}; it must be f32 or f64",
                name_of(type));
  const std::int64_t T = a.parts.shape[1];
  ORTHANT_CHECK(a.parts.shape[0] > 0 && a.parts.shape[2] == 3,
                "cross_entropy_fwd: parts is {}; it must be [N,T,3] of at least one rank",
                a.parts.shape.text());
  expect.in("labels", a.labels, {T}, DType::kI32);
  expect.out("loss", a.loss, {T}, type);
  expect.out("lse", a.lse, {T}, type);
  expect.out_step_state(a.step_state);
  expect.no_overlap({});
}

void check(const CrossEntropyBwd& a) {
  Expect expect(CrossEntropyBwd::kName, Expect::Role::kIn, "logits", a.logits, 2);
  expect.anchor_is_float();
  const std::int64_t T = a.logits.shape[0];
  check_columns(CrossEntropyBwd::kName, a.first_column, a.valid, a.logits);
  expect.in("lse", a.lse, {T}, wide(a.logits.dtype));
  expect.in("labels", a.labels, {T}, DType::kI32);
  expect.in_step_state(a.step_state);
  expect.out("dlogits", a.dlogits, a.logits.shape, a.logits.dtype);
  expect.no_overlap({{a.dlogits, a.logits}});
}

// A logit is compared, then subtracted, exponentiated and added.
Cost cost(const SoftmaxPart& a) {
  return {.flops = 4 * static_cast<double>(a.logits.count()), .bytes = bytes_moved(a)};
}

Cost cost(const CrossEntropyFwd& a) {
  return {.flops = 2 * static_cast<double>(a.parts.count()), .bytes = bytes_moved(a)};
}

Cost cost(const CrossEntropyBwd& a) {
  return {.flops = 4 * static_cast<double>(a.logits.count()), .bytes = bytes_moved(a)};
}

std::int64_t workspace_bytes(const SoftmaxPart& /*a*/) {
  return 0;
}
std::int64_t workspace_bytes(const CrossEntropyFwd& /*a*/) {
  return 0;
}
std::int64_t workspace_bytes(const CrossEntropyBwd& /*a*/) {
  return 0;
}

}  // namespace orthant
