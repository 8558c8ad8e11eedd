#include <cmath>
#include <limits>

#include "ops/ref/doubles.h"
#include "ops/ref/ref_ops.h"

namespace orthant {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

}  // namespace

void RefOps::exec(const SoftmaxPart& a, const Tensor& /*workspace*/) {
  const std::int64_t T = a.logits.shape[0];
  const std::int64_t V = a.logits.shape[1];
  const auto* labels = a.labels.ptr<const std::int32_t>();
  const Doubles logits(a.logits);
  Doubles part(T * 3);
  for (std::int64_t t = 0; t < T; ++t) {
    double max = kNone;
    for (std::int64_t v = 0; v < a.valid; ++v) {
      max = std::fmax(max, logits[t * V + v]);
    }
    double sum = 0;
    for (std::int64_t v = 0; v < a.valid; ++v) {
      sum += std::exp(logits[t * V + v] - max);
    }
    const std::int64_t column = labels[t] - a.first_column;
    const bool is_here = labels[t] >= 0 && column >= 0 && column < a.valid;
    part[t * 3] = max;
    part[t * 3 + 1] = sum;
    part[t * 3 + 2] = is_here ? logits[t * V + column] : kNone;
  }
  part.store(a.part);
}

void RefOps::exec(const CrossEntropyFwd& a, const Tensor& /*workspace*/) {
  const std::int64_t N = a.parts.shape[0];
  const std::int64_t T = a.parts.shape[1];
  const auto* labels = a.labels.ptr<const std::int32_t>();
  const Doubles parts(a.parts);
  Doubles loss(T);
  Doubles lse(T);
  double& loss_sum = step_state_of(a.step_state).loss_sum;
  for (std::int64_t t = 0; t < T; ++t) {
    double max = kNone;
    double label_logit = kNone;
    for (std::int64_t n = 0; n < N; ++n) {
      max = std::fmax(max, parts[(n * T + t) * 3]);
      label_logit = std::fmax(label_logit, parts[(n * T + t) * 3 + 2]);
    }
    double sum = 0;
    for (std::int64_t n = 0; n < N; ++n) {
      sum += parts[(n * T + t) * 3 + 1] * std::exp(parts[(n * T + t) * 3] - max);
    }
    lse[t] = max + std::log(sum);
    loss[t] = labels[t] < 0 ? 0 : lse[t] - label_logit;
    loss_sum += loss[t];
  }
  loss.store(a.loss);
  lse.store(a.lse);
}

void RefOps::exec(const CrossEntropyBwd& a, const Tensor& /*workspace*/) {
  const std::int64_t T = a.logits.shape[0];
  const std::int64_t V = a.logits.shape[1];
  const auto* labels = a.labels.ptr<const std::int32_t>();
  const StepState& state = step_state_of(a.step_state);
  const double scale = state.inv_tokens * state.loss_scale;
  const Doubles logits(a.logits);
  const Doubles lse(a.lse);
  Doubles dlogits(T * V);
  for (std::int64_t t = 0; t < T; ++t) {
    if (labels[t] < 0) continue;
    for (std::int64_t v = 0; v < a.valid; ++v) {
      const double is_label = a.first_column + v == labels[t] ? 1 : 0;
      dlogits[t * V + v] = (std::exp(logits[t * V + v] - lse[t]) - is_label) * scale;
    }
  }
  dlogits.store(a.dlogits);
}

}  // namespace orthant
