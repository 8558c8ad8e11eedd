// OpCase: an op with arguments of some shapes, types and aliasing, to be run on any backend.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/support/op_bed.h"

namespace orthant {

struct OpRun {
  std::function<void()> run;
  std::vector<Tensor> writes;  // what is compared; absent ones included
};

struct OpCase {
  std::string name;  // letters, digits and _
  std::function<OpRun(OpBed&)> prepare;
};

using OpCases = std::vector<OpCase>;

template <OpArgs A>
OpRun op_run(OpBed& bed, const A& args) {
  const auto writes = args.writes();
  return {.run = [&bed, args] { bed.run(args); }, .writes = {writes.begin(), writes.end()}};
}

// "gelu_fwd", bf16, {7, 13}, "over_x" -> "gelu_fwd_bf16_7x13_over_x"
inline std::string case_name(std::string_view op, DType type, const Shape& shape,
                             std::string_view variant = "") {
  std::string name = std::string(op) + "_" + std::string(name_of(type)) + "_";
  for (int i = 0; i < shape.rank(); ++i) {
    name += (i > 0 ? "x" : "") + std::to_string(shape[i]);
  }
  if (!variant.empty()) name += "_" + std::string(variant);
  return name;
}

}  // namespace orthant
