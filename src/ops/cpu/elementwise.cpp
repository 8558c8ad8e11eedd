#include <cstring>

#include "ops/cpu/backend.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/random_words.h"

namespace orthant::cpu::ORTHANT_LEVEL {
namespace {

// y[i] = f(i, lanes) for all elements of y.
template <class T, class F>
void fill(const Tensor& y, std::int64_t bytes, int num_threads, F&& f) {
  T* to = y.ptr<T>();
  for_shares(num_threads, y.count(), 64, bytes, [&](std::int64_t first, std::int64_t last) {
    for_vectors(last - first, [&](std::int64_t i, auto lanes) {
      store(to + first + i, f(first + i, lanes), lanes);
    });
  });
}

// Calls f with a value of any float type, f64 too.
template <class F>
void with_float(DType type, std::string_view op, F&& f) {
  if (type == DType::kF64) return f(double{});
  with_type(type, op, f);
}

void copy_bytes(const Tensor& y, const Tensor& x, int num_threads) {
  for_shares(num_threads, y.bytes(), 64, y.bytes(), [&](std::int64_t first, std::int64_t last) {
    std::memcpy(y.data + first, x.data + first, static_cast<std::size_t>(last - first));
  });
}

template <class T>
void drop_row(const Dropout& a, const DropoutRule& rule, std::int64_t t) {
  constexpr std::int64_t kRun = 256;
  alignas(64) std::uint32_t buffer[kRun + 2 * kWordsAtOnce];
  const std::int64_t C = a.x.shape[1];
  const std::int64_t row = a.first_row + t;
  const std::int64_t sample = a.sample_ids.ptr<const std::int64_t>()[row / a.S];
  const std::int64_t element = (sample * a.S + row % a.S) * C;
  const T* x = a.x.ptr<const T>() + t * C;
  T* y = a.y.ptr<T>() + t * C;
  for (std::int64_t first = 0; first < C; first += kRun) {
    const std::int64_t count = std::min(kRun, C - first);
    const std::uint32_t* word =
        rule.words(static_cast<std::uint64_t>(element + first), count, buffer);
    for_vectors(count, [&](std::int64_t i, auto lanes) {
      const Floats factor = rule.factors(word + i);
      // A dropped element is zero even where x is not finite.
      const Floats y_kept = only(is_not_zero(factor), load(x + first + i, lanes) * factor);
      store(y + first + i, y_kept, lanes);
    });
  }
}

template <class T>
std::int64_t count_bad(const T* x, std::int64_t n) {
  std::int64_t bad = 0;
  for_vectors(n, [&](std::int64_t i, auto lanes) {
    // x - x is NaN unless x is finite.
    const Floats v = load(x + i, lanes);
    bad += count(is_nan(v - v));
  });
  return bad;
}

}  // namespace

void CpuOps::exec(const Add& a, const Tensor& /*workspace*/) {
  with_type(a.y.dtype, Add::kName, [&](auto element) {
    using T = decltype(element);
    const T* left = a.a.ptr<const T>();
    const T* right = a.b.ptr<const T>();
    fill<T>(a.y, 3 * a.y.bytes(), num_threads_, [=](std::int64_t i, auto lanes) {
      return load(left + i, lanes) + load(right + i, lanes);
    });
  });
}

void CpuOps::exec(const Accumulate& a, const Tensor& /*workspace*/) {
  with_type(a.x.dtype, Accumulate::kName, [&](auto element) {
    const auto* x = a.x.ptr<const decltype(element)>();
    with_type(a.y.dtype, Accumulate::kName, [&](auto sum) {
      const auto* y = a.y.ptr<const decltype(sum)>();
      fill<decltype(sum)>(a.y, 3 * a.y.bytes(), num_threads_, [=](std::int64_t i, auto lanes) {
        return load(y + i, lanes) + load(x + i, lanes);
      });
    });
  });
}

void CpuOps::exec(const Copy& a, const Tensor& /*workspace*/) {
  if (a.x.dtype == a.y.dtype) return copy_bytes(a.y, a.x, num_threads_);
  with_float(a.x.dtype, Copy::kName, [&](auto from) {
    with_float(a.y.dtype, Copy::kName, [&](auto to) {
      const auto* x = a.x.ptr<const decltype(from)>();
      fill<decltype(to)>(a.y, 2 * a.y.bytes(), num_threads_,
                         [=](std::int64_t i, auto lanes) { return load(x + i, lanes); });
    });
  });
}

void CpuOps::exec(const Zero& a, const Tensor& /*workspace*/) {
  for_shares(num_threads_, a.y.bytes(), 64, a.y.bytes(),
             [&](std::int64_t first, std::int64_t last) {
               std::memset(a.y.data + first, 0, static_cast<std::size_t>(last - first));
             });
}

void CpuOps::exec(const Dropout& a, const Tensor& /*workspace*/) {
  const DropoutRule rule = make_dropout_rule(*a.step_state.ptr<const StepState>(), a.site, a.p);
  with_type(a.x.dtype, Dropout::kName, [&](auto element) {
    for_shares(num_threads_, a.x.shape[0], 1, 4 * a.x.bytes(),
               [&](std::int64_t first, std::int64_t last) {
                 for (std::int64_t t = first; t < last; ++t) {
                   drop_row<decltype(element)>(a, rule, t);
                 }
               });
  });
}

void CpuOps::exec(const CountNonFinite& a, const Tensor& /*workspace*/) {
  std::int64_t count = 0;
  with_type(a.x.dtype, CountNonFinite::kName, [&](auto element) {
    const auto* x = a.x.ptr<const decltype(element)>();
    for_shares(num_threads_, a.x.count(), 64, a.x.bytes(),
               [&](std::int64_t first, std::int64_t last) {
                 const std::int64_t here = count_bad(x + first, last - first);
#pragma omp atomic
                 count += here;
               });
  });
  *a.count.ptr<std::int64_t>() += count;
}

}  // namespace orthant::cpu::ORTHANT_LEVEL
