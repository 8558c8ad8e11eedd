#include "params/param.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace orthant {

std::int64_t vocab_part(std::int64_t vocab, int num_parts) {
  constexpr std::int64_t kMultiple = 8;  // 16 bytes of bf16: rows of logits stay aligned
  const std::int64_t span = kMultiple * num_parts;
  return (vocab + span - 1) / span * kMultiple;
}

Param make_param(ParamSpec spec, int tp_rank, int tp) {
  Param param;
  param.local = spec.global;
  param.box.extent = spec.global;
  if (spec.split_dim < 0) {
    param.copies = tp;
  } else if (tp > 1 || spec.is_padded) {
    const auto dim = static_cast<std::size_t>(spec.split_dim);
    const std::int64_t whole = spec.global[spec.split_dim];
    const std::int64_t num_parts = spec.repeats && tp % whole == 0 ? whole : tp;
    if (!spec.is_padded && whole % num_parts != 0) {
      fail_user(
          "layout.tp={} does not divide dimension {} of {}, which is {}; choose a tp that divides "
          "it",
          tp, spec.split_dim, spec.name, whole);
    }
    param.copies = static_cast<int>(tp / num_parts);
    param.is_partial = param.copies > 1;
    const std::int64_t extent = spec.is_padded ? vocab_part(whole, tp) : whole / num_parts;
    const std::int64_t begin = std::min(whole, extent * (tp_rank / param.copies));
    param.local = spec.global.with(spec.split_dim, extent);
    param.box.begin[dim] = begin;
    param.box.extent = spec.global.with(spec.split_dim, std::min(extent, whole - begin));
  }
  param.spec = std::move(spec);
  return param;
}

}  // namespace orthant
