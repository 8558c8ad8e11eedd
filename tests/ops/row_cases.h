// Cases of ops that work row by row or element by element: norms, activations, sums, dropout.
#pragma once

#include <cmath>

#include "tests/ops/op_case.h"

namespace orthant {

// One element, one column, odd widths, widths around those of vectors, and many blocks of rows.
inline const std::vector<Shape>& row_shapes() {
  static const std::vector<Shape> shapes = {{1, 1},   {1, 768}, {9, 1},    {7, 13},  {5, 64},
                                            {3, 257}, {63, 33}, {130, 40}, {200, 96}};
  return shapes;
}

enum class NormInputs { kAlone, kWithAddend, kInPlace };  // in place: sum is x's memory

inline void add_norm_fwd_case(OpCases& cases, DType type, const Shape& shape, NormKind kind,
                              NormInputs inputs) {
  const bool is_layer = kind == NormKind::kLayerNorm;
  const std::string variant =
      std::string(is_layer ? "layer" : "rms") + (inputs == NormInputs::kWithAddend ? "_addend"
                                                 : inputs == NormInputs::kInPlace  ? "_in_place"
                                                                                   : "");
  cases.push_back({case_name("norm_fwd", type, shape, variant), [=](OpBed& bed) {
                     const std::int64_t T = shape[0];
                     const std::int64_t C = shape[1];
                     NormFwd a{.y = bed.out(shape, type),
                               .sum = {},
                               .mean = {},
                               .rstd = bed.out({T}, DType::kF32),
                               .x = bed.normal("x", shape, type, 1, 0.5),
                               .addend = {},
                               .w = bed.normal("w", {C}, type, 0.2, 1),
                               .b = {},
                               .kind = kind,
                               .eps = 1e-5};
                     if (is_layer) {
                       a.mean = bed.out({T}, DType::kF32);
                       a.b = bed.normal("b", {C}, type);
                     }
                     if (inputs != NormInputs::kAlone) {
                       a.addend = bed.normal("addend", shape, type);
                       a.sum = inputs == NormInputs::kInPlace ? a.x : bed.out(shape, type);
                     }
                     return op_run(bed, a);
                   }});
}

enum class NormOutput { kApart, kOverX, kOverDy, kOverResidual };

inline void add_norm_bwd_case(OpCases& cases, DType type, const Shape& shape, NormKind kind,
                              NormOutput output) {
  const bool is_layer = kind == NormKind::kLayerNorm;
  const char* places[] = {"", "_over_x", "_over_dy", "_over_residual"};
  const std::string variant =
      std::string(is_layer ? "layer" : "rms") + places[static_cast<int>(output)];
  cases.push_back({case_name("norm_bwd", type, shape, variant), [=](OpBed& bed) {
                     const std::int64_t T = shape[0];
                     const std::int64_t C = shape[1];
                     NormBwd a{.dx = {},
                               .dw = bed.out({C}, DType::kF32),
                               .db = {},
                               .dy = bed.normal("dy", shape, type),
                               .x = bed.normal("x", shape, type, 1, 0.5),
                               .w = bed.normal("w", {C}, type, 0.2, 1),
                               .mean = {},
                               .rstd = bed.normal("rstd", {T}, DType::kF32, 0.1, 1),
                               .d_residual = {},
                               .kind = kind};
                     if (is_layer) {
                       a.db = bed.out({C}, DType::kF32);
                       a.mean = bed.normal("mean", {T}, DType::kF32, 0.1, 0.5);
                     }
                     if (output != NormOutput::kApart) {
                       a.d_residual = bed.normal("d_residual", shape, type);
                     }
                     switch (output) {
                       case NormOutput::kApart: a.dx = bed.out(shape, type); break;
                       case NormOutput::kOverX: a.dx = a.x; break;
                       case NormOutput::kOverDy: a.dx = a.dy; break;
                       case NormOutput::kOverResidual: a.dx = a.d_residual; break;
                     }
                     return op_run(bed, a);
                   }});
}

inline void add_norm_cases(OpCases& cases, DType type) {
  for (const Shape& shape : row_shapes()) {
    for (const NormKind kind : {NormKind::kLayerNorm, NormKind::kRmsNorm}) {
      add_norm_fwd_case(cases, type, shape, kind, NormInputs::kAlone);
      add_norm_fwd_case(cases, type, shape, kind, NormInputs::kWithAddend);
      add_norm_bwd_case(cases, type, shape, kind, NormOutput::kApart);
    }
  }
  // Widths of models: a GPU shares each out among its threads in another way.
  const std::vector<Shape> wide_shapes = {{33, 256}, {20, 512},  {70, 768}, {41, 1024}, {19, 1600},
                                          {9, 4096}, {11, 5120}, {6, 8192}, {5, 12288}, {2, 20000}};
  for (const NormKind kind : {NormKind::kLayerNorm, NormKind::kRmsNorm}) {
    for (const Shape& shape : wide_shapes) {
      add_norm_fwd_case(cases, type, shape, kind, NormInputs::kWithAddend);
      add_norm_bwd_case(cases, type, shape, kind, NormOutput::kOverResidual);
    }
    add_norm_fwd_case(cases, type, {65, 33}, kind, NormInputs::kInPlace);
    for (const NormOutput output :
         {NormOutput::kOverX, NormOutput::kOverDy, NormOutput::kOverResidual}) {
      add_norm_bwd_case(cases, type, {65, 33}, kind, output);
    }
  }
}

inline void add_activation_cases(OpCases& cases, DType type) {
  // Elements up to about 10: both tails of the curves are met.
  constexpr double kScale = 3;
  for (const Shape& shape : row_shapes()) {
    const Shape wide_shape = {shape[0], 2 * shape[1]};
    cases.push_back({case_name("gelu_fwd", type, shape), [=](OpBed& bed) {
                       return op_run(bed, GeluFwd{.y = bed.out(shape, type),
                                                  .x = bed.normal("x", shape, type, kScale)});
                     }});
    for (const std::string place : {"", "over_x", "over_dy"}) {
      cases.push_back(
          {case_name("gelu_bwd", type, shape, place), [=](OpBed& bed) {
             const Tensor x = bed.normal("x", shape, type, kScale);
             const Tensor dy = bed.normal("dy", shape, type);
             const Tensor dx = place.empty() ? bed.out(shape, type) : place == "over_x" ? x : dy;
             return op_run(bed, GeluBwd{.dx = dx, .dy = dy, .x = x});
           }});
    }
    cases.push_back({case_name("swiglu_fwd", type, shape), [=](OpBed& bed) {
                       const Tensor gate_up = bed.normal("gate_up", wide_shape, type, kScale);
                       return op_run(bed, SwigluFwd{.y = bed.out(shape, type), .gate_up = gate_up});
                     }});
    for (const std::string place : {"", "over_gate_up"}) {
      cases.push_back(
          {case_name("swiglu_bwd", type, shape, place), [=](OpBed& bed) {
             const Tensor gate_up = bed.normal("gate_up", wide_shape, type, kScale);
             return op_run(
                 bed, SwigluBwd{.d_gate_up = place.empty() ? bed.out(wide_shape, type) : gate_up,
                                .dy = bed.normal("dy", shape, type),
                                .gate_up = gate_up});
           }});
    }
  }
}

// Rows first_row .. of 3 sequences of S tokens.
inline void add_dropout_cases(OpCases& cases, DType type) {
  struct Size {
    std::int64_t S, C, first_row, T;
  };
  for (const Size& n : {Size{1, 1, 0, 3}, Size{5, 13, 0, 15}, Size{5, 13, 4, 7},
                        Size{40, 66, 60, 60}, Size{5, 40, 4, 7}, Size{40, 64, 60, 60}}) {
    const std::int64_t S = n.S;
    const std::int64_t C = n.C;
    const std::int64_t first_row = n.first_row;
    const std::int64_t T = n.T;
    for (const bool in_place : {false, true}) {
      cases.push_back({case_name("dropout", type, {T, C, first_row}, in_place ? "in_place" : ""),
                       [=](OpBed& bed) {
                         const Tensor x = bed.normal("x", {T, C}, type);
                         return op_run(
                             bed,
                             Dropout{.y = in_place ? x : bed.out({T, C}, type),
                                     .x = x,
                                     .sample_ids = bed.whole("samples", {3}, DType::kI64, 0, 1000),
                                     .step_state = bed.step_state({.step = 3, .seed = 7}),
                                     .S = S,
                                     .first_row = first_row,
                                     .p = 0.3,
                                     .site = 11});
                       }});
    }
  }
}

inline void add_elementwise_cases(OpCases& cases, DType type) {
  for (const Shape& shape : {Shape{1}, Shape{257}, Shape{3, 1000}, Shape{2, 3, 5, 7}}) {
    for (const std::string place : {"", "over_a", "over_b"}) {
      cases.push_back(
          {case_name("add", type, shape, place), [=](OpBed& bed) {
             const Tensor a = bed.normal("a", shape, type);
             const Tensor b = bed.normal("b", shape, type);
             const Tensor y = place.empty() ? bed.out(shape, type) : place == "over_a" ? a : b;
             return op_run(bed, Add{.y = y, .a = a, .b = b});
           }});
    }
    for (const DType sum : {DType::kF32, DType::kBF16}) {
      cases.push_back({case_name("accumulate", type, shape, "to_" + std::string(name_of(sum))),
                       [=](OpBed& bed) {
                         return op_run(bed, Accumulate{.y = bed.normal("y", shape, sum),
                                                       .x = bed.normal("x", shape, type)});
                       }});
    }
    for (const DType to : {DType::kF32, DType::kBF16}) {
      cases.push_back(
          {case_name("copy", type, shape, "to_" + std::string(name_of(to))), [=](OpBed& bed) {
             return op_run(bed, Copy{.y = bed.out(shape, to), .x = bed.normal("x", shape, type)});
           }});
    }
    cases.push_back({case_name("zero", type, shape), [=](OpBed& bed) {
                       return op_run(bed, Zero{.y = bed.normal("y", shape, type)});
                     }});
    cases.push_back(
        {case_name("count_non_finite", type, shape), [=](OpBed& bed) {
           const Tensor x = bed.normal("x", shape, type);
           const double bad[] = {INFINITY};
           bed.set(x.flat(x.count() / 2, 1), bad);
           return op_run(
               bed, CountNonFinite{.count = bed.whole("count", {1}, DType::kI64, 3, 3), .x = x});
         }});
  }
}

}  // namespace orthant
