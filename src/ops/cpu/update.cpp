// The update. A block of the squared norm is summed in the order of its elements, sixteen blocks
// side by side.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>

#include "ops/clip.h"
#include "ops/cpu/backend.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/random_words.h"
#include "ops/exact_sum.h"
#include "ops/random_rounding.h"
#include "ops/split_master.h"

namespace orthant::cpu::ORTHANT_LEVEL {
namespace {

constexpr int kBlocks = 16;                          // side by side
constexpr std::int64_t kRun = kBlocks * kNormBlock;  // elements

// Sixteen blocks at g. They are read across, which the processor does not foresee: so the lines of
// the run after the next are asked for.
template <class T>
void add_sixteen_blocks(NormLimbs limbs, const T* g) {
  constexpr int kLine = 64 / sizeof(T);  // elements
  Doubles sums[kBlocks / kLanes][2] = {};
  for (int i = 0; i < kNormBlock; i += kLanes) {
    for (std::int64_t line = 0; line < kLanes; ++line) {
      const T* ahead = g + 2 * kRun + (i + line) * kLine;
      _mm_prefetch(reinterpret_cast<const char*>(ahead), _MM_HINT_T0);
    }
    for (int group = 0; group < kBlocks / kLanes; ++group) {
      Floats column[kLanes];
      for (int block = 0; block < kLanes; ++block) {
        column[block] = load(g + (group * kLanes + block) * kNormBlock + i);
      }
      transpose(column);
      // A square is exact in double, so that the fma rounds as an addition does.
      for (const Floats& each : column) {
        const Doubles low = low_half(each);
        const Doubles high = high_half(each);
        sums[group][0] = fma(low, low, sums[group][0]);
        sums[group][1] = fma(high, high, sums[group][1]);
      }
    }
  }
  double terms[kBlocks];
  std::memcpy(terms, sums, sizeof(terms));
  for (const double term : terms) {
    add_exactly(limbs, term);
  }
}

template <class T>
void add_all_squares(NormLimbs limbs, const T* g, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + kRun <= n; i += kRun) {
    add_sixteen_blocks(limbs, g + i);
  }
  add_squares(limbs, std::span(g + i, static_cast<std::size_t>(n - i)));
}

// What AdamW needs of one call, in f32.
struct AdamNumbers {
  float clip;
  float beta1, rest1;  // beta, 1 - beta
  float beta2, rest2;
  float root;  // 1 / sqrt(1 - beta2^t)
  float eps;
  float rate;   // lr / (1 - beta1^t)
  float decay;  // lr * weight_decay
};

AdamNumbers adam_numbers(const AdamW& a, const StepState& state) {
  const auto t = static_cast<double>(state.updates);
  return {.clip = static_cast<float>(state.clip_factor),
          .beta1 = static_cast<float>(a.beta1),
          .rest1 = static_cast<float>(1 - a.beta1),
          .beta2 = static_cast<float>(a.beta2),
          .rest2 = static_cast<float>(1 - a.beta2),
          .root = static_cast<float>(1 / std::sqrt(1 - std::pow(a.beta2, t))),
          .eps = static_cast<float>(a.eps),
          .rate = static_cast<float>(state.lr / (1 - std::pow(a.beta1, t))),
          .decay = static_cast<float>(state.lr * a.weight_decay)};
}

// How moments are kept: in f32 ...
struct PlainMoments {
  using Element = float;
  void keep(float* m_at, Floats m, float* v_at, Floats v, std::int64_t /*i*/, auto lanes) const {
    store(m_at, m, lanes);
    store(v_at, v, lanes);
  }
};

// ... or in bf16, rounded by chance: `words` are those of elements `first` on.
struct RoundedMoments {
  using Element = BFloat16;
  const std::uint32_t* words;
  std::int64_t first;

  void keep(BFloat16* m_at, Floats m, BFloat16* v_at, Floats v, std::int64_t i, auto lanes) const {
    const Ints word = load_words(words + (i - first));
    store_upper(m_at, m, word & 0xffffU, lanes);
    store_upper(v_at, v, word >> 16, lanes);
  }
  // round_by_chance() of random_rounding.h: what is added carries into the upper half or not.
  static void store_upper(BFloat16* at, Floats x, Ints chance, auto lanes) {
    const Ints upper = (bits_of(x) + chance) & 0xffff0000U;
    store(at, select(is_nan(x), x, floats_of(upper)), lanes);
  }
};

// How master weights are kept: in f32, beside a value of another type, ...
template <class T>
struct WholeMasters {
  float* masters;
  T* values;  // null: the masters are the values

  Floats get(std::int64_t i, auto lanes) const { return load(masters + i, lanes); }
  void keep(std::int64_t i, Floats master, auto lanes) const {
    store(masters + i, master, lanes);
    if (values != nullptr) store(values + i, master, lanes);
  }
};

// ... or in what their values lack.
struct SplitMasters {
  std::uint16_t* remainders;
  BFloat16* values;

  Floats get(std::int64_t i, auto lanes) const {
    const Ints upper = bits_of(load(values + i, lanes));
    return floats_of(joined_master(upper, load_halves(remainders + i, lanes)));
  }
  void keep(std::int64_t i, Floats master, auto lanes) const {
    const Ints upper = to_bfloat16(master) << 16;
    store(values + i, master, lanes);
    store_halves(remainders + i, master_remainder(bits_of(master), upper), lanes);
  }
};

inline Floats load_grad(const AdamW& a, std::int64_t i, auto lanes) {
  if (a.grad.dtype == DType::kBF16) return load(a.grad.ptr<const BFloat16>() + i, lanes);
  return load(a.grad.ptr<const float>() + i, lanes);
}

template <class Masters, class Moments, class Lanes>
inline void adam_vector(const AdamW& a, const AdamNumbers& n, const Masters& masters,
                        const Moments& moments, std::int64_t i, Lanes lanes) {
  auto* const m_at = a.m.ptr<typename Moments::Element>() + i;
  auto* const v_at = a.v.ptr<typename Moments::Element>() + i;
  const Floats g = load_grad(a, i, lanes) * splat(n.clip);
  const Floats m = fma(splat(n.beta1), load(m_at, lanes), splat(n.rest1) * g);
  const Floats v = fma(splat(n.beta2), load(v_at, lanes), (splat(n.rest2) * g) * g);
  const Floats divisor = fma(sqrt(v), splat(n.root), splat(n.eps));
  const Floats step = (splat(n.rate) * m) / divisor;
  const Floats before = masters.get(i, lanes);
  const Floats master = before - fma(splat(n.decay), before, step);
  moments.keep(m_at, m, v_at, v, i, lanes);
  masters.keep(i, master, lanes);
}

template <class Masters>
void adam_share(const AdamW& a, const AdamNumbers& n, const Masters& masters, std::int64_t first,
                std::int64_t last) {
  for_vectors(last - first, [&](std::int64_t i, auto lanes) {
    adam_vector(a, n, masters, PlainMoments{}, first + i, lanes);
  });
}

// Run by run of elements that lie side by side in the whole tensor, as their random words do.
template <class Masters>
void adam_share_rounded(const AdamW& a, const StepState& state, const AdamNumbers& n,
                        const Masters& masters, std::int64_t first, std::int64_t last) {
  constexpr std::int64_t kWords = 256;
  alignas(64) std::uint32_t buffer[kWords + 2 * kWordsAtOnce];
  const std::uint64_t stream = rounding_stream(a.stream, state.step);
  while (first < last) {
    const std::int64_t count = std::min({kWords, last - first, a.places.neighbours(first)});
    const auto element = static_cast<std::uint64_t>(a.places.of(first));
    const RoundedMoments moments{.words = words_of(state.seed, stream, element, count, buffer),
                                 .first = first};
    for_vectors(count, [&](std::int64_t i, auto lanes) {
      adam_vector(a, n, masters, moments, first + i, lanes);
    });
    first += count;
  }
}

// Calls f with how they are kept.
template <class F>
void with_masters(const AdamW& a, F&& f) {
  if (a.is_split()) {
    return f(SplitMasters{a.master.ptr<std::uint16_t>(), a.value.ptr<BFloat16>()});
  }
  with_type(a.value.present() ? a.value.dtype : DType::kF32, AdamW::kName, [&](auto element) {
    using T = decltype(element);
    f(WholeMasters<T>{a.master.ptr<float>(), a.value.ptr<T>()});
  });
}

}  // namespace

void CpuOps::exec(const SquaredNorm& a, const Tensor& /*workspace*/) {
  const NormLimbs sum(a.sum.ptr<std::int64_t>(), kNormLimbs);
  with_type(a.g.dtype, SquaredNorm::kName, [&](auto element) {
    const std::span all(a.g.ptr<const decltype(element)>(), static_cast<std::size_t>(a.g.count()));
    const std::size_t skipped = add_first_squares(sum, all, a.start);
    const auto* g = all.data() + skipped;
    const std::int64_t count = a.g.count() - static_cast<std::int64_t>(skipped);
    for_shares(num_threads_, count, 16 * kNormBlock, a.g.bytes(),
               [&](std::int64_t first, std::int64_t last) {
                 std::array<std::int64_t, kNormLimbs> here{};
                 add_all_squares(here, g + first, last - first);
                 for (std::size_t i = 0; i < here.size(); ++i) {
                   std::atomic_ref(sum[i]).fetch_add(here[i], std::memory_order_relaxed);
                 }
               });
  });
  carry_over(sum);
}

void CpuOps::exec(const ClipFactor& a, const Tensor& /*workspace*/) {
  StepState& state = *a.step_state.ptr<StepState>();
  const ConstNormLimbs sum(a.sum.ptr<const std::int64_t>(), kNormLimbs);
  apply_norm(state, exact_value(sum));
}

void CpuOps::exec(const AdamW& a, const Tensor& workspace) {
  const StepState& state = *a.step_state.ptr<const StepState>();
  if (state.skip != 0) {
    if (a.value.present() && !a.is_split()) exec(Copy{.y = a.value, .x = a.master}, workspace);
    return;
  }
  const AdamNumbers numbers = adam_numbers(a, state);
  with_masters(a, [&](const auto& masters) {
    for_shares(num_threads_, a.master.count(), 64, 28 * a.master.count(),
               [&](std::int64_t first, std::int64_t last) {
                 if (a.m.dtype == DType::kBF16) {
                   adam_share_rounded(a, state, numbers, masters, first, last);
                 } else {
                   adam_share(a, numbers, masters, first, last);
                 }
               });
  });
}

}  // namespace orthant::cpu::ORTHANT_LEVEL
