// Cases of matrix products and of embedding tables.
#pragma once

#include "tests/ops/op_case.h"

namespace orthant {

// T rows, I inputs, O outputs: one row, one column, odd sizes, and sizes around the blocks that a
// fast product works in.
struct LinearSize {
  std::int64_t T, I, O;
};
inline constexpr LinearSize kLinearSizes[] = {
    {1, 1, 1},   {1, 64, 48},  {5, 1, 7},     {9, 7, 1},     {7, 13, 5},     {33, 31, 17},
    {6, 16, 16}, {64, 64, 64}, {65, 130, 67}, {1, 513, 259}, {130, 96, 200}, {37, 600, 41}};

inline void add_linear_cases(OpCases& cases, DType type) {
  for (const LinearSize& n : kLinearSizes) {
    const std::int64_t T = n.T;
    const std::int64_t I = n.I;
    const std::int64_t O = n.O;
    for (const bool has_bias : {false, true}) {
      const char* variant = has_bias ? "bias" : "";
      const Shape shape = {T, I, O};
      cases.push_back({case_name("linear_fwd", type, shape, variant), [=](OpBed& bed) {
                         return op_run(
                             bed, LinearFwd{.y = bed.out({T, O}, type),
                                            .x = bed.normal("x", {T, I}, type),
                                            .w = bed.normal("w", {O, I}, type),
                                            .b = has_bias ? bed.normal("b", {O}, type) : Tensor{}});
                       }});
      cases.push_back(
          {case_name("linear_bwd_weight", type, shape, variant), [=](OpBed& bed) {
             return op_run(bed, LinearBwdWeight{
                                    .dw = bed.normal("dw", {O, I}, DType::kF32),
                                    .db = has_bias ? bed.normal("db", {O}, DType::kF32) : Tensor{},
                                    .dy = bed.normal("dy", {T, O}, type),
                                    .x = bed.normal("x", {T, I}, type)});
           }});
    }
    cases.push_back({case_name("linear_bwd_input", type, {T, I, O}), [=](OpBed& bed) {
                       return op_run(bed, LinearBwdInput{.dx = bed.out({T, I}, type),
                                                         .dy = bed.normal("dy", {T, O}, type),
                                                         .w = bed.normal("w", {O, I}, type)});
                     }});
  }
}

// GELU of a product, which is kept, and the gradient through it.
inline void add_gelu_product_cases(OpCases& cases, DType type) {
  for (const LinearSize& n : kLinearSizes) {
    const std::int64_t T = n.T;
    const std::int64_t I = n.I;
    const std::int64_t O = n.O;
    for (const bool has_bias : {false, true}) {
      cases.push_back({case_name("linear_fwd", type, {T, I, O}, has_bias ? "gelu_bias" : "gelu"),
                       [=](OpBed& bed) {
                         return op_run(
                             bed, LinearFwd{.y = bed.out({T, O}, type),
                                            .x = bed.normal("x", {T, I}, type),
                                            .w = bed.normal("w", {O, I}, type),
                                            .b = has_bias ? bed.normal("b", {O}, type) : Tensor{},
                                            .gelu = bed.out({T, O}, type)});
                       }});
    }
    cases.push_back({case_name("linear_bwd_input", type, {T, I, O}, "gelu"), [=](OpBed& bed) {
                       return op_run(bed,
                                     LinearBwdInput{.dx = bed.out({T, I}, type),
                                                    .dy = bed.normal("dy", {T, O}, type),
                                                    .w = bed.normal("w", {O, I}, type),
                                                    .gelu_x = bed.normal("gelu_x", {T, I}, type)});
                     }});
  }
}

// A table of some rows from first_row on; ids lie below, in and above it.
inline void add_embedding_cases(OpCases& cases, DType type) {
  struct Size {
    std::int64_t T, C, rows, first_row;
  };
  for (const Size& n :
       {Size{1, 1, 1, 0}, Size{7, 13, 5, 5}, Size{70, 33, 11, 0}, Size{129, 768, 50, 25}}) {
    const std::int64_t T = n.T;
    const std::int64_t C = n.C;
    const std::int64_t rows = n.rows;
    const std::int64_t first_row = n.first_row;
    const Shape shape = {T, C, rows};
    const auto ids = [=](OpBed& bed) {
      return bed.whole("ids", {T}, DType::kI32, 0, first_row + rows + rows / 2);
    };
    for (const Write write : {Write::kSet, Write::kAdd}) {
      cases.push_back({case_name("embedding_fwd", type, shape, write == Write::kAdd ? "add" : ""),
                       [=](OpBed& bed) {
                         const bool adds = write == Write::kAdd;
                         return op_run(bed,
                                       EmbeddingFwd{.y = adds ? bed.normal("y", {T, C}, type)
                                                              : bed.out({T, C}, type),
                                                    .ids = ids(bed),
                                                    .table = bed.normal("table", {rows, C}, type),
                                                    .first_row = first_row,
                                                    .write = write});
                       }});
    }
    cases.push_back({case_name("embedding_bwd", type, shape), [=](OpBed& bed) {
                       return op_run(
                           bed, EmbeddingBwd{.dtable = bed.normal("dtable", {rows, C}, DType::kF32),
                                             .dy = bed.normal("dy", {T, C}, type),
                                             .ids = ids(bed),
                                             .first_row = first_row});
                     }});
  }
}

}  // namespace orthant
