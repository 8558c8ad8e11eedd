// Softmax and cross-entropy: two passes over a row of logits that stays in the second-level cache.
#include <cmath>
#include <limits>

#include "ops/cpu/backend.h"
#include "ops/cpu/parallel.h"

namespace orthant::cpu::ORTHANT_LEVEL {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

template <class T>
float row_max(const T* x, std::int64_t n) {
  Floats part[4] = {splat(kNone), splat(kNone), splat(kNone), splat(kNone)};
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    for (int j = 0; j < 4; ++j) {
      part[j] = max(load(x + i + j * kLanes), part[j]);
    }
  }
  for_vectors(n - i, [&](std::int64_t k, auto lanes) {
    part[0] = max(keep(load(x + i + k, lanes), splat(kNone), lanes), part[0]);
  });
  return largest(max(max(part[0], part[1]), max(part[2], part[3])));
}

// Sum of e^(x - max). Runs of 1024 elements are summed in f32, the runs in double.
template <class T>
double exp_sum(const T* x, std::int64_t n, float highest) {
  constexpr std::int64_t kRun = 1024;
  const Floats shift = splat(highest);
  double total = 0;
  for (std::int64_t first = 0; first < n; first += kRun) {
    const std::int64_t count = std::min(kRun, n - first);
    Floats even = zero();
    Floats odd = zero();
    std::int64_t i = 0;
    for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
      even += exp(load(x + first + i) - shift);
      odd += exp(load(x + first + i + kLanes) - shift);
    }
    for_vectors(count - i, [&](std::int64_t k, auto lanes) {
      even += keep(exp(load(x + first + i + k, lanes) - shift), zero(), lanes);
    });
    total += static_cast<double>(sum(even + odd));
  }
  return total;
}

template <class T>
void softmax_row(const SoftmaxPart& a, std::int64_t t) {
  const T* logits = a.logits.ptr<const T>() + t * a.logits.shape[1];
  const std::int64_t label = a.labels.ptr<const std::int32_t>()[t];
  const std::int64_t column = label - a.first_column;
  const bool is_here = label >= 0 && column >= 0 && column < a.valid;
  float* part = a.part.ptr<float>() + t * 3;
  part[0] = row_max(logits, a.valid);
  part[1] = static_cast<float>(exp_sum(logits, a.valid, part[0]));
  part[2] = is_here ? value_of(logits[column]) : kNone;
}

template <class T>
void gradient_row(const CrossEntropyBwd& a, std::int64_t t, float scale) {
  const std::int64_t V = a.logits.shape[1];
  const T* logits = a.logits.ptr<const T>() + t * V;
  T* d = a.dlogits.ptr<T>() + t * V;
  const std::int64_t label = a.labels.ptr<const std::int32_t>()[t];
  const std::int64_t valid = label < 0 ? 0 : a.valid;
  const std::int64_t column = label - a.first_column;
  const Floats lse = splat(a.lse.ptr<const float>()[t]);
  const bool is_here = label >= 0 && column >= 0 && column < valid;
  // Read before the row is overwritten.
  const Floats at_label = is_here ? exp(splat(value_of(logits[column])) - lse) : zero();
  for_vectors(valid, [&](std::int64_t i, auto lanes) {
    store(d + i, exp(load(logits + i, lanes) - lse) * splat(scale), lanes);
  });
  if (is_here) store(d + column, (at_label - splat(1)) * splat(scale), Tail{1});
  for_vectors(V - valid, [&](std::int64_t i, auto lanes) { store(d + valid + i, zero(), lanes); });
}

}  // namespace

void CpuOps::exec(const SoftmaxPart& a, const Tensor& /*workspace*/) {
  with_type(a.logits.dtype, SoftmaxPart::kName, [&](auto element) {
    for_shares(num_threads_, a.logits.shape[0], 1, 2 * a.logits.bytes(),
               [&](std::int64_t first, std::int64_t last) {
                 for (std::int64_t t = first; t < last; ++t) {
                   softmax_row<decltype(element)>(a, t);
                 }
               });
  });
}

void CpuOps::exec(const CrossEntropyFwd& a, const Tensor& /*workspace*/) {
  const std::int64_t N = a.parts.shape[0];
  const std::int64_t T = a.parts.shape[1];
  const auto* labels = a.labels.ptr<const std::int32_t>();
  const auto* parts = a.parts.ptr<const float>();
  double loss_sum = 0;
  for (std::int64_t t = 0; t < T; ++t) {
    float highest = kNone;
    float label_logit = kNone;
    for (std::int64_t n = 0; n < N; ++n) {
      const float* part = parts + (n * T + t) * 3;
      highest = std::fmax(highest, part[0]);
      label_logit = std::fmax(label_logit, part[2]);
    }
    double sum = 0;
    for (std::int64_t n = 0; n < N; ++n) {
      const float* part = parts + (n * T + t) * 3;
      const double shift = static_cast<double>(part[0]) - static_cast<double>(highest);
      sum += static_cast<double>(part[1]) * std::exp(shift);
    }
    const double lse = static_cast<double>(highest) + std::log(sum);
    const double loss = labels[t] < 0 ? 0 : lse - static_cast<double>(label_logit);
    a.lse.ptr<float>()[t] = static_cast<float>(lse);
    a.loss.ptr<float>()[t] = static_cast<float>(loss);
    loss_sum += loss;
  }
  a.step_state.ptr<StepState>()->loss_sum += loss_sum;
}

void CpuOps::exec(const CrossEntropyBwd& a, const Tensor& /*workspace*/) {
  const StepState& state = *a.step_state.ptr<const StepState>();
  const auto scale = static_cast<float>(state.inv_tokens * state.loss_scale);
  with_type(a.logits.dtype, CrossEntropyBwd::kName, [&](auto element) {
    for_shares(num_threads_, a.logits.shape[0], 1, 2 * a.logits.bytes(),
               [&](std::int64_t first, std::int64_t last) {
                 for (std::int64_t t = first; t < last; ++t) {
                   gradient_row<decltype(element)>(a, t, scale);
                 }
               });
  });
}

}  // namespace orthant::cpu::ORTHANT_LEVEL
