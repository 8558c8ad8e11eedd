#include "ops/attention.h"

#include "ops/expect.h"

namespace orthant {
namespace {

std::int64_t qkv_width(const AttentionShape& n) {
  return (n.H + 2 * n.G) * n.D;
}

void check_shape(std::string_view op, const AttentionShape& n) {
  ORTHANT_CHECK(n.B >= 0 && n.S > 0 && n.H > 0 && n.G > 0 && n.D > 0,
                "{}: B={}, S={}, H={}, G={}, D={}; all must be positive", op, n.B, n.S, n.H, n.G,
                n.D);
  ORTHANT_CHECK(n.H % n.G == 0, "{}: H={} is no multiple of G={}", op, n.H, n.G);
  ORTHANT_CHECK(n.dropout >= 0 && n.dropout < 1, "{}: dropout={} must lie in [0, 1)", op,
                n.dropout);
  ORTHANT_CHECK(n.first_head >= 0 && n.first_head + n.H <= n.num_all_heads,
                "{}: heads {}..{} are not among num_all_heads={}", op, n.first_head,
                n.first_head + n.H - 1, n.num_all_heads);
}

// What dropout needs is wanted when there is dropout, and looked at when it is given.
void expect_dropout(Expect& expect, const AttentionShape& n, const Tensor& sample_ids,
                    const Tensor& step_state) {
  const bool is_needed = n.dropout > 0;
  if (is_needed || sample_ids.present()) expect.in("sample_ids", sample_ids, {n.B}, DType::kI64);
  if (is_needed || step_state.present()) expect.in_step_state(step_state);
}

// A product of all causal pairs of queries and keys; the causal half counts.
double causal_product_flops(const AttentionShape& n) {
  const auto S = static_cast<double>(n.S);
  return static_cast<double>(n.B * n.H * n.D) * S * S;
}

}  // namespace

void check(const AttentionFwd& a) {
  Expect expect(AttentionFwd::kName, Expect::Role::kIn, "qkv", a.qkv, 2);
  expect.anchor_is_float();
  const AttentionShape& n = a.shape;
  check_shape(AttentionFwd::kName, n);
  const DType type = a.qkv.dtype;
  const std::int64_t T = n.B * n.S;
  ORTHANT_CHECK(a.qkv.shape == (Shape{T, qkv_width(n)}),
                "attention_fwd: qkv is {}; it must be [B*S,(H+2G)*D] = [{},{}]", a.qkv.shape.text(),
                T, qkv_width(n));
  expect.out("o", a.o, {T, n.H * n.D}, type);
  expect.out("lse", a.lse, {n.B, n.H, n.S}, wide(type));
  if (a.slopes.present()) expect.in("slopes", a.slopes, {n.H}, DType::kF32);
  if (a.positions.present()) expect.in("positions", a.positions, {T}, DType::kI32);
  expect_dropout(expect, n, a.sample_ids, a.step_state);
  expect.no_overlap({});
}

void check(const AttentionBwd& a) {
  Expect expect(AttentionBwd::kName, Expect::Role::kIn, "qkv", a.qkv, 2);
  expect.anchor_is_float();
  const AttentionShape& n = a.shape;
  check_shape(AttentionBwd::kName, n);
  const DType type = a.qkv.dtype;
  const std::int64_t T = n.B * n.S;
  ORTHANT_CHECK(a.qkv.shape == (Shape{T, qkv_width(n)}),
                "attention_bwd: qkv is {}; it must be [B*S,(H+2G)*D] = [{},{}]", a.qkv.shape.text(),
                T, qkv_width(n));
  expect.in("do", a.do_, {T, n.H * n.D}, type);
  expect.in("o", a.o, {T, n.H * n.D}, type);
  expect.in("lse", a.lse, {n.B, n.H, n.S}, wide(type));
  expect.out("dqkv", a.dqkv, a.qkv.shape, type);
  if (a.slopes.present()) expect.in("slopes", a.slopes, {n.H}, DType::kF32);
  if (a.positions.present()) expect.in("positions", a.positions, {T}, DType::kI32);
  expect_dropout(expect, n, a.sample_ids, a.step_state);
  expect.no_overlap({{a.dqkv, a.qkv}});
}

void check(const AttentionCached& a) {
  Expect expect(AttentionCached::kName, Expect::Role::kIn, "qkv", a.qkv, 2);
  expect.anchor_is_float();
  const AttentionShape& n = a.shape;
  check_shape(AttentionCached::kName, n);
  ORTHANT_CHECK(n.dropout == 0, "attention_cached: dropout={}; generation has none, it must be 0",
                n.dropout);
  const DType type = a.qkv.dtype;
  const std::int64_t T = n.B * n.S;
  ORTHANT_CHECK(a.qkv.shape == (Shape{T, qkv_width(n)}),
                "attention_cached: qkv is {}; it must be [B*S,(H+2G)*D] = [{},{}]",
                a.qkv.shape.text(), T, qkv_width(n));
  ORTHANT_CHECK(a.k_cache.shape.rank() == 4,
                "attention_cached: k_cache is {}; it must be [B,M,G,D]", a.k_cache.shape.text());
  const std::int64_t M = a.k_cache.shape[1];
  expect.out("o", a.o, {T, n.H * n.D}, type);
  expect.out("k_cache", a.k_cache, {n.B, M, n.G, n.D}, type);
  expect.out("v_cache", a.v_cache, {n.B, M, n.G, n.D}, type);
  if (a.slopes.present()) expect.in("slopes", a.slopes, {n.H}, DType::kF32);
  ORTHANT_CHECK(a.start >= 0 && a.start + n.S <= M,
                "attention_cached: tokens {}..{} do not fit a cache of {}", a.start,
                a.start + n.S - 1, M);
  expect.no_overlap({});
}

// Two products: q k^T and p v.
Cost cost(const AttentionFwd& a) {
  return {.flops = 2 * causal_product_flops(a.shape),
          .bytes = bytes_moved(a),
          .depth = static_cast<double>(a.shape.D)};
}

// Five products: q k^T again, do v^T, p^T do, ds k and ds^T q.
Cost cost(const AttentionBwd& a) {
  return {.flops = 5 * causal_product_flops(a.shape),
          .bytes = bytes_moved(a),
          .depth = static_cast<double>(a.shape.D)};
}

Cost cost(const AttentionCached& a) {
  const AttentionShape& n = a.shape;
  const auto S = static_cast<double>(n.S);
  const double pairs = S * static_cast<double>(a.start) + S * S / 2;
  // Keys and values before `start` are read, those of the new tokens written.
  const std::int64_t row_bytes = n.G * n.D * size_of(a.k_cache.dtype);
  const auto cache_bytes = static_cast<double>(2 * n.B * (a.start + n.S) * row_bytes);
  return {.flops = 4 * static_cast<double>(n.B * n.H * n.D) * pairs,
          .bytes = cache_bytes + bytes_of(a.reads()) + static_cast<double>(a.o.bytes()),
          .depth = static_cast<double>(n.D)};
}

std::int64_t workspace_bytes(const AttentionFwd& /*a*/) {
  return 0;
}

std::int64_t workspace_bytes(const AttentionBwd& a) {
  const AttentionShape& n = a.shape;
  const std::int64_t num_floats = n.B * n.S * qkv_width(n) + n.B * n.H * n.S;
  return num_floats * static_cast<std::int64_t>(sizeof(float));
}

std::int64_t workspace_bytes(const AttentionCached& /*a*/) {
  return 0;
}

}  // namespace orthant
