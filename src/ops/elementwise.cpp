#include "ops/elementwise.h"

#include "ops/expect.h"

namespace orthant {

void check(const Add& a) {
  Expect expect(Add::kName, Expect::Role::kIn, "a", a.a, Expect::kAnyRank);
  expect.anchor_is_float();
  expect.in("b", a.b, a.a.shape, a.a.dtype);
  expect.out("y", a.y, a.a.shape, a.a.dtype);
  expect.no_overlap({{a.y, a.a}, {a.y, a.b}});
}

void check(const Accumulate& a) {
  Expect expect(Accumulate::kName, Expect::Role::kIn, "x", a.x, Expect::kAnyRank);
  expect.anchor_is_float();
  expect.out("y", a.y, a.x.shape, a.y.dtype == DType::kBF16 ? DType::kBF16 : wide(a.x.dtype));
  expect.no_overlap({});
}

void check(const Copy& a) {
  Expect expect(Copy::kName, Expect::Role::kIn, "x", a.x, Expect::kAnyRank);
  const bool converts = is_float(a.x.dtype) && is_float(a.y.dtype);
  expect.out("y", a.y, a.x.shape, converts ? a.y.dtype : a.x.dtype);
  expect.no_overlap({});
}

void check(const Zero& a) {
  const Expect expect(Zero::kName, Expect::Role::kOut, "y", a.y, Expect::kAnyRank);
}

void check(const Dropout& a) {
  Expect expect(Dropout::kName, Expect::Role::kIn, "x", a.x, 2);
  expect.anchor_is_float();
  ORTHANT_CHECK(a.sample_ids.shape.rank() == 1,
                "dropout: sample_ids is {}; it must have 1 dimension", a.sample_ids.shape.text());
  const std::int64_t B = a.sample_ids.shape[0];
  const std::int64_t T = a.x.shape[0];
  expect.in("sample_ids", a.sample_ids, {B}, DType::kI64);
  expect.in_step_state(a.step_state);
  expect.out("y", a.y, a.x.shape, a.x.dtype);
  ORTHANT_CHECK(a.S > 0 && a.first_row >= 0 && a.first_row + T <= B * a.S,
                "dropout: x is {} from first_row={}, sample_ids is {}, S={}; the rows must lie in "
                "B*S = {}",
                a.x.shape.text(), a.first_row, a.sample_ids.shape.text(), a.S, B * a.S);
  ORTHANT_CHECK(a.p >= 0 && a.p < 1, "dropout: p={} must lie in [0, 1)", a.p);
  expect.no_overlap({{a.y, a.x}});
}

void check(const CountNonFinite& a) {
  Expect expect(CountNonFinite::kName, Expect::Role::kIn, "x", a.x, Expect::kAnyRank);
  expect.anchor_is_float();
  expect.out("count", a.count, {1}, DType::kI64);
  expect.no_overlap({});
}

Cost cost(const Add& a) {
  return {.flops = static_cast<double>(a.y.count()), .bytes = bytes_moved(a)};
}

Cost cost(const Accumulate& a) {
  return {.flops = static_cast<double>(a.y.count()),
          .bytes = bytes_moved(a) + bytes_of(a.writes())};
}

Cost cost(const Copy& a) {
  return {.flops = 0, .bytes = bytes_moved(a)};
}

Cost cost(const Zero& a) {
  return {.flops = 0, .bytes = bytes_moved(a)};
}

// One product; the random bits are integer work.
Cost cost(const Dropout& a) {
  return {.flops = static_cast<double>(a.y.count()), .bytes = bytes_moved(a)};
}

Cost cost(const CountNonFinite& a) {
  return {.flops = static_cast<double>(a.x.count()), .bytes = bytes_moved(a)};
}

std::int64_t workspace_bytes(const Add& /*a*/) {
  return 0;
}
std::int64_t workspace_bytes(const Accumulate& /*a*/) {
  return 0;
}
std::int64_t workspace_bytes(const Copy& /*a*/) {
  return 0;
}
std::int64_t workspace_bytes(const Zero& /*a*/) {
  return 0;
}
std::int64_t workspace_bytes(const Dropout& /*a*/) {
  return 0;
}
std::int64_t workspace_bytes(const CountNonFinite& /*a*/) {
  return 0;
}

}  // namespace orthant
