// All cases of all ops for activations of one type, shared by tests and benchmarks.
#pragma once

#include "tests/ops/attention_cases.h"
#include "tests/ops/linear_cases.h"
#include "tests/ops/loss_cases.h"
#include "tests/ops/row_cases.h"

namespace orthant {

inline OpCases op_cases(DType type) {
  OpCases cases;
  add_linear_cases(cases, type);
  add_gelu_product_cases(cases, type);
  add_embedding_cases(cases, type);
  add_norm_cases(cases, type);
  add_activation_cases(cases, type);
  add_dropout_cases(cases, type);
  add_elementwise_cases(cases, type);
  add_attention_cases(cases, type);
  add_cached_attention_cases(cases, type);
  add_rotary_cases(cases, type);
  add_loss_cases(cases, type);
  if (type == DType::kF32) {
    add_cross_entropy_fwd_cases(cases);
    add_update_cases(cases);
  }
  return cases;
}

}  // namespace orthant
