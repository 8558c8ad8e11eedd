#include <cmath>
#include <cstring>

#include "ops/dropout.h"
#include "ops/ref/doubles.h"
#include "ops/ref/ref_ops.h"

namespace orthant {

void RefOps::exec(const Add& a, const Tensor& /*workspace*/) {
  Doubles y(a.a);
  const Doubles b(a.b);
  for (std::int64_t i = 0; i < y.count(); ++i) {
    y[i] += b[i];
  }
  y.store(a.y);
}

void RefOps::exec(const Accumulate& a, const Tensor& /*workspace*/) {
  Doubles y(a.y);
  const Doubles x(a.x);
  for (std::int64_t i = 0; i < y.count(); ++i) {
    y[i] += x[i];
  }
  y.store(a.y);
}

void RefOps::exec(const Copy& a, const Tensor& /*workspace*/) {
  if (a.y.dtype == a.x.dtype) {
    std::memcpy(a.y.data, a.x.data, static_cast<std::size_t>(a.x.bytes()));
  } else {
    Doubles(a.x).store(a.y);
  }
}

void RefOps::exec(const Zero& a, const Tensor& /*workspace*/) {
  std::memset(a.y.data, 0, static_cast<std::size_t>(a.y.bytes()));
}

void RefOps::exec(const Dropout& a, const Tensor& /*workspace*/) {
  const std::int64_t T = a.x.shape[0];
  const std::int64_t C = a.x.shape[1];
  const auto* sample_ids = a.sample_ids.ptr<const std::int64_t>();
  const StepState& state = step_state_of(a.step_state);
  const std::uint64_t stream = dropout_stream(a.site, state.step);
  Doubles y(a.x);
  for (std::int64_t t = 0; t < T; ++t) {
    const std::int64_t sample = sample_ids[(a.first_row + t) / a.S];
    const std::int64_t first = (sample * a.S + (a.first_row + t) % a.S) * C;
    for (std::int64_t c = 0; c < C; ++c) {
      const bool keeps = dropout_keeps(state.seed, stream, static_cast<std::uint64_t>(first + c),
                                       dropout_threshold(a.p));
      y[t * C + c] = keeps ? y[t * C + c] / (1 - a.p) : 0;
    }
  }
  y.store(a.y);
}

void RefOps::exec(const CountNonFinite& a, const Tensor& /*workspace*/) {
  const Doubles x(a.x);
  std::int64_t& count = *a.count.ptr<std::int64_t>();
  for (std::int64_t i = 0; i < x.count(); ++i) {
    count += std::isfinite(x[i]) ? 0 : 1;
  }
}

}  // namespace orthant
