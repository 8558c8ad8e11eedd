// Cases of the loss and of the update.
#pragma once

#include <cmath>

#include "tests/ops/op_case.h"

namespace orthant {

// The columns first_column .. first_column+valid-1 of a vocabulary, then padding up to V.
struct VocabularyPart {
  std::int64_t T, V, first_column, valid;
};
inline constexpr VocabularyPart kVocabularyParts[] = {{1, 1, 0, 1},    {7, 13, 0, 13},
                                                      {5, 64, 64, 50}, {33, 257, 257, 257},
                                                      {4, 16, 48, 0},  {70, 1000, 0, 999}};

// Labels of the whole vocabulary, twice as wide as the part, with about one of four masked.
inline Tensor labels(OpBed& bed, const VocabularyPart& n) {
  std::vector<std::int64_t> values;
  for (std::int64_t t = 0; t < n.T; ++t) {
    const auto word = philox(OpBed::kSeed, stream_of("labels"), static_cast<std::uint64_t>(t));
    const auto size = static_cast<std::uint32_t>(n.first_column + 2 * n.V);
    values.push_back(word[0] % 4 == 0 ? -100 : word[1] % size);
  }
  return bed.whole({n.T}, DType::kI32, values);
}

inline StepState loss_state() {
  return {.inv_tokens = 1.0 / 48, .loss_scale = 1, .loss_sum = 3.25};
}

inline void add_loss_cases(OpCases& cases, DType type) {
  for (const VocabularyPart& n : kVocabularyParts) {
    const Shape shape = {n.T, n.V, n.valid};
    cases.push_back({case_name("softmax_part", type, shape), [=](OpBed& bed) {
                       return op_run(
                           bed, SoftmaxPart{.part = bed.out({n.T, 3}, DType::kF32),
                                            .logits = bed.normal("logits", {n.T, n.V}, type, 4),
                                            .labels = labels(bed, n),
                                            .first_column = n.first_column,
                                            .valid = n.valid});
                     }});
    for (const bool in_place : {false, true}) {
      cases.push_back(
          {case_name("cross_entropy_bwd", type, shape, in_place ? "in_place" : ""),
           [=](OpBed& bed) {
             const Tensor logits = bed.normal("logits", {n.T, n.V}, type, 2);
             return op_run(bed,
                           CrossEntropyBwd{.dlogits = in_place ? logits : bed.out({n.T, n.V}, type),
                                           .logits = logits,
                                           .lse = bed.normal("lse", {n.T}, DType::kF32, 1, 8),
                                           .labels = labels(bed, n),
                                           .step_state = bed.step_state(loss_state()),
                                           .first_column = n.first_column,
                                           .valid = n.valid});
           }});
    }
  }
}

// Parts of N ranks; the label's logit is on one of them, and the last rank may have no column.
inline void add_cross_entropy_fwd_cases(OpCases& cases) {
  struct Size {
    std::int64_t N, T;
    bool last_is_empty;
  };
  for (const Size& n :
       {Size{1, 1, false}, Size{2, 7, false}, Size{3, 33, true}, Size{8, 130, false}}) {
    const std::int64_t N = n.N;
    const std::int64_t T = n.T;
    const bool last_is_empty = n.last_is_empty;
    cases.push_back({case_name("cross_entropy_fwd", DType::kF32, {N, T}), [=](OpBed& bed) {
                       std::vector<double> parts;
                       for (std::int64_t i = 0; i < N * T; ++i) {
                         const auto at = static_cast<std::uint64_t>(i);
                         const double max = 3 + normal(OpBed::kSeed, 1, at);
                         const double sum = 1 + std::exp(normal(OpBed::kSeed, 2, at));
                         const bool is_empty = last_is_empty && i / T == N - 1;
                         const bool has_label = i / T == (i % T) % (last_is_empty ? N - 1 : N);
                         parts.push_back(is_empty ? -INFINITY : max);
                         parts.push_back(is_empty ? 0 : sum);
                         parts.push_back(has_label ? max - 1 : -INFINITY);
                       }
                       return op_run(
                           bed, CrossEntropyFwd{.loss = bed.out({T}, DType::kF32),
                                                .lse = bed.out({T}, DType::kF32),
                                                .step_state = bed.step_state(loss_state()),
                                                .parts = bed.floats({N, T, 3}, DType::kF32, parts),
                                                .labels = labels(bed, {T, 50, 0, 50})});
                     }});
  }
}

enum class Masters : std::uint8_t { kAreValues, kBesideValues, kSplit };

// `state_type`: of moments and gradient.
inline OpCase adamw_case(std::int64_t N, Masters masters, std::int64_t skip, DType state_type) {
  const bool is_split = masters == Masters::kSplit;
  const bool has_value = masters != Masters::kAreValues;
  const std::string variant = std::string(has_value ? "bf16" : "f32") + (is_split ? "_split" : "") +
                              (skip != 0 ? "_skipped" : "");
  return {case_name("adamw", state_type, {N}, variant), [=](OpBed& bed) {
            const StepState state = {
                .step = 5, .seed = 77, .lr = 1e-2, .clip_factor = 0.7, .skip = skip, .updates = 3};
            const Tensor master = is_split
                                      ? bed.whole("remainder", {N}, DType::kI16, -0x8000, 0x7fff)
                                      : bed.normal("master", {N}, DType::kF32);
            std::vector<double> squares;
            for (std::int64_t i = 0; i < N; ++i) {
              const double g = normal(OpBed::kSeed, 3, static_cast<std::uint64_t>(i));
              squares.push_back(g * g / 20);
            }
            return op_run(
                bed, AdamW{.master = master,
                           .m = bed.normal("m", {N}, state_type, 0.1),
                           .v = bed.floats({N}, state_type, squares),
                           .value = has_value ? bed.normal("master", {N}, DType::kBF16) : Tensor{},
                           .grad = bed.normal("grad", {N}, state_type),
                           .step_state = bed.step_state(state),
                           .beta1 = 0.9,
                           .beta2 = 0.95,
                           .eps = 1e-8,
                           .weight_decay = 0.1,
                           .places = {.first = 3, .row = 37, .stride = 101, .offset = 11},
                           .stream = 99});
          }};
}

inline void add_update_cases(OpCases& cases) {
  for (const DType type : {DType::kF32, DType::kBF16}) {
    for (const std::int64_t N : {1, 63, 64, 65, 1000, 100003}) {
      cases.push_back({case_name("squared_norm", type, {N}), [=](OpBed& bed) {
                         return op_run(bed, SquaredNorm{.sum = bed.whole("sum", {kNormLimbs},
                                                                         DType::kI64, 0, 0),
                                                        .g = bed.normal("g", {N}, type)});
                       }});
    }
  }
  for (const double max_norm : {0.0, 1.0, 1e9}) {
    const std::string variant = "max_norm_" + std::to_string(static_cast<std::int64_t>(max_norm));
    cases.push_back(
        {case_name("clip_factor", DType::kF32, {kNormLimbs}, variant), [=](OpBed& bed) {
           std::vector<std::int64_t> limbs(kNormLimbs, 0);
           limbs[9] = 12345;
           limbs[10] = 67;
           const StepState state = {.loss_scale = 8, .max_norm = max_norm, .skip = 1, .updates = 4};
           return op_run(bed, ClipFactor{.step_state = bed.step_state(state),
                                         .sum = bed.whole({kNormLimbs}, DType::kI64, limbs)});
         }});
  }
  for (const std::int64_t N : {1, 7, 64, 1003}) {
    for (const Masters masters : {Masters::kAreValues, Masters::kBesideValues, Masters::kSplit}) {
      for (const std::int64_t skip : {0, 1}) {
        for (const DType state_type : {DType::kF32, DType::kBF16}) {
          cases.push_back(adamw_case(N, masters, skip, state_type));
        }
      }
    }
  }
}

}  // namespace orthant
