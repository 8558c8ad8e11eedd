#include "comm/rank_order.h"

#include <cstring>

#include "base/check.h"

namespace orthant {
namespace {

// Elements summed at once: the accumulator stays in the L1 cache, and a fixed count is vectorised
// without a scalar rest.
constexpr int kBlock = 256;

// How an element is stored, and in what it is added.
struct Plain {
  template <class T>
  static T widen(T value) {
    return value;
  }
  template <class T>
  static T narrow(T value) {
    return value;
  }
};

template <class T>
struct AsFloat {
  static float widen(T value) { return static_cast<float>(value); }
  static T narrow(float value) { return T(value); }
};

struct Sum {
  template <class T>
  static T join(T a, T b) {
    return a + b;
  }
  // Wraps instead of overflowing.
  static std::int64_t join(std::int64_t a, std::int64_t b) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  }
};

struct Max {
  template <class T>
  static T join(T a, T b) {
    return a < b ? b : a;
  }
};

// `count` is a constant where it is kBlock, after inlining.
template <class T, class Wide, class Form, class Op>
[[gnu::always_inline]] inline void reduce_block(std::span<const std::byte* const> inputs,
                                                std::span<std::byte* const> outputs,
                                                std::int64_t first, int count) {
  Wide sum[kBlock];
  T result[kBlock];
  const auto* head = reinterpret_cast<const T*>(inputs[0]) + first;
  for (int i = 0; i < count; ++i) {
    sum[i] = Form::widen(head[i]);
  }
  for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
    const auto* next = reinterpret_cast<const T*>(inputs[rank]) + first;
    for (int i = 0; i < count; ++i) {
      sum[i] = Op::join(sum[i], static_cast<Wide>(Form::widen(next[i])));
    }
  }
  for (int i = 0; i < count; ++i) {
    result[i] = Form::narrow(sum[i]);
  }
  for (std::byte* output : outputs) {
    std::memcpy(reinterpret_cast<T*>(output) + first, result,
                static_cast<std::size_t>(count) * sizeof(T));
  }
}

template <class T, class Wide, class Form, class Op>
void reduce_all(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
                std::int64_t count) {
  std::int64_t first = 0;
  for (; first + kBlock <= count; first += kBlock) {
    reduce_block<T, Wide, Form, Op>(inputs, outputs, first, kBlock);
  }
  if (first < count) {
    reduce_block<T, Wide, Form, Op>(inputs, outputs, first, static_cast<int>(count - first));
  }
}

template <class Op>
void reduce_typed(DType dtype, std::span<const std::byte* const> inputs,
                  std::span<std::byte* const> outputs, std::int64_t count) {
  switch (dtype) {
    case DType::kF32: return reduce_all<float, float, Plain, Op>(inputs, outputs, count);
    case DType::kF64: return reduce_all<double, double, Plain, Op>(inputs, outputs, count);
    case DType::kI64:
      return reduce_all<std::int64_t, std::int64_t, Plain, Op>(inputs, outputs, count);
    case DType::kBF16:
      return reduce_all<BFloat16, float, AsFloat<BFloat16>, Op>(inputs, outputs, count);
    case DType::kF16: return reduce_all<Half, float, AsFloat<Half>, Op>(inputs, outputs, count);
    default: ORTHANT_CHECK(false, "there is no reduction of {} over ranks", name_of(dtype));
  }
}

}  // namespace

void reduce_in_rank_order(DType dtype, Reduce reduce, std::span<const std::byte* const> inputs,
                          std::span<std::byte* const> outputs, std::int64_t count) {
  if (reduce == Reduce::kSum) {
    reduce_typed<Sum>(dtype, inputs, outputs, count);
  } else {
    reduce_typed<Max>(dtype, inputs, outputs, count);
  }
}

}  // namespace orthant
