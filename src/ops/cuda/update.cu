// The update: the same sums of squares and the same AdamW, bit for bit, as the cpu backend's.
#include "ops/cuda/backend.h"
#include "ops/cuda/exact_sum.cuh"
#include "ops/cuda/kernel.cuh"
#include "ops/cuda/masters.cuh"
#include "ops/cuda/moments.cuh"
#include "ops/step_state.h"

namespace orthant::cuda {
namespace {

constexpr std::int64_t kMostBlocks = 132 * 8;  // of kernels that walk over their elements

constexpr int kSquareThreads = 128;

// A block of the norm in words of 16 bytes. In shared memory one more keeps off bank conflicts.
template <class T>
struct NormWords {
  static constexpr int kEach = 16 / static_cast<int>(sizeof(T));  // elements
  static constexpr int kCount = kNormBlock / kEach;
  static constexpr int kRow = kCount + 1;
};

// A square is exact in double, so that the fma rounds as an addition does.
__device__ inline double add_square(float x, double total) {
  return __fma_rn(static_cast<double>(x), static_cast<double>(x), total);
}

template <class T>
__device__ inline double square_sum(const T* from, std::int64_t count) {
  double total = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    total = add_square(to_float(from[i]), total);
  }
  return total;
}

template <class T>
__device__ inline double square_sum(const uint4* words) {
  constexpr int kEach = NormWords<T>::kEach;
  double total = 0;
#pragma unroll
  for (int i = 0; i < NormWords<T>::kCount; ++i) {
    const Values<kEach> x = load<kEach>(reinterpret_cast<const T*>(words + i));
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      total = add_square(x.at[k], total);
    }
  }
  return total;
}

// A thread sums a block of kNormBlock elements; a warp reads the blocks of its threads together.
template <bool kPacks, class T>
__global__ void __launch_bounds__(kSquareThreads)
    squares_kernel(std::int64_t count, const T* g, Limb* sum) {
  using Words = NormWords<T>;
  __shared__ Limb limbs[kNormLimbs];
  __shared__ uint4 rows[kPacks ? kSquareThreads * Words::kRow : 1];
  if (threadIdx.x < kNormLimbs) limbs[threadIdx.x] = 0;
  __syncthreads();
  ExactTerms terms(limbs);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  // The first block of a warp, so that its threads go round together.
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x - lane;
       first * kNormBlock < count; first += stride) {
    const std::int64_t rest = count - first * kNormBlock;
    if (kPacks && rest >= 32 * kNormBlock) {
      const auto* from = reinterpret_cast<const uint4*>(g + first * kNormBlock);
      uint4* const mine = rows + (threadIdx.x - lane) * Words::kRow;
#pragma unroll
      for (int i = 0; i < Words::kCount; ++i) {
        const int word = i * 32 + lane;
        mine[word / Words::kCount * Words::kRow + word % Words::kCount] = from[word];
      }
      __syncwarp();
      terms.add(square_sum<T>(mine + lane * Words::kRow));
      __syncwarp();
    } else if (lane * kNormBlock < rest) {
      terms.add(square_sum(g + (first + lane) * kNormBlock,
                           min(std::int64_t{kNormBlock}, rest - lane * kNormBlock)));
    }
  }
  terms.flush();
  __syncthreads();
  if (threadIdx.x < kNormLimbs && limbs[threadIdx.x] != 0) {
    atomicAdd(sum + threadIdx.x, limbs[threadIdx.x]);
  }
}

__global__ void carry_kernel(std::int64_t* sum) {
  carry_over(sum);
}

__global__ void clip_kernel(StepState* state, const std::int64_t* sum) {
  // apply_norm() of ops/clip.h.
  state->grad_norm = sqrt(exact_value(sum)) / state->loss_scale;
  const bool clips = state->max_norm > 0;
  const double clip = clips ? fmin(1.0, state->max_norm / (state->grad_norm + 1e-6)) : 1.0;
  state->clip_factor = clip / state->loss_scale;
  state->skip = isfinite(state->grad_norm) ? 0 : 1;
  state->updates += 1 - state->skip;
  if (state->scale_window == 0) return;
  state->skipped += state->skip;
  state->good_steps = state->skip != 0 ? 0 : state->good_steps + 1;
  if (state->skip != 0) state->loss_scale = fmax(state->loss_scale / 2, kLeastLossScale);
  if (state->good_steps == state->scale_window) {
    state->loss_scale *= 2;
    state->good_steps = 0;
  }
}

struct AdamSettings {
  double beta1;
  double beta2;
  double eps;
  double weight_decay;
};

// What AdamW needs of one call, in f32.
struct AdamNumbers {
  float clip;
  float beta1, rest1;
  float beta2, rest2;
  float root;  // 1 / sqrt(1 - beta2^t)
  float eps;
  float rate;   // lr / (1 - beta1^t)
  float decay;  // lr * weight_decay
};

__device__ inline AdamNumbers adam_numbers(const AdamSettings& a, const StepState& state) {
  const auto t = static_cast<double>(state.updates);
  return {.clip = static_cast<float>(state.clip_factor),
          .beta1 = static_cast<float>(a.beta1),
          .rest1 = static_cast<float>(1 - a.beta1),
          .beta2 = static_cast<float>(a.beta2),
          .rest2 = static_cast<float>(1 - a.beta2),
          .root = static_cast<float>(1 / sqrt(1 - pow(a.beta2, t))),
          .eps = static_cast<float>(a.eps),
          .rate = static_cast<float>(state.lr / (1 - pow(a.beta1, t))),
          .decay = static_cast<float>(state.lr * a.weight_decay)};
}

template <class M, class G>
struct AdamTensors {
  M* m;
  M* v;
  const G* grad;
};

template <int W, class Masters, class M, class G>
__device__ inline void adam_at(const AdamNumbers& n, const AdamTensors<M, G>& a,
                               const Masters& masters, const MomentRounding<M>& rounding,
                               std::int64_t i) {
  Values<W> master = masters.template get<W>(i);
  Values<W> m = load<W>(a.m + i);
  Values<W> v = load<W>(a.v + i);
  const Values<W> grad = load<W>(a.grad + i);
#pragma unroll
  for (int k = 0; k < W; ++k) {
    const float g = grad.at[k] * n.clip;
    m.at[k] = __fmaf_rn(n.beta1, m.at[k], n.rest1 * g);
    v.at[k] = __fmaf_rn(n.beta2, v.at[k], (n.rest2 * g) * g);
    const float divisor = __fmaf_rn(__fsqrt_rn(v.at[k]), n.root, n.eps);
    const float step = (n.rate * m.at[k]) / divisor;
    master.at[k] -= __fmaf_rn(n.decay, master.at[k], step);
  }
  rounding.template store_moments<W>(a.m + i, m, a.v + i, v, i);
  masters.template keep<W>(i, master);
}

template <int W, class Masters, class M, class G>
__global__ void adam_kernel(AdamSettings settings, const StepState* state, std::int64_t count,
                            AdamTensors<M, G> a, Masters masters, MomentRounding<M> rounding) {
  __shared__ AdamNumbers numbers;
  const bool skips = state->skip != 0;
  if (threadIdx.x == 0) numbers = adam_numbers(settings, *state);
  __syncthreads();
  rounding.begin(*state);
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x * W;
  for (std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * W;
       first < count; first += stride) {
    if (skips) {
      if (!masters.has_values_to_write()) return;
      const std::int64_t last = first + W < count ? first + W : count;
      for (std::int64_t i = first; i < last; ++i) {
        masters.write_value(i);
      }
    } else if (first + W <= count) {
      adam_at<W>(numbers, a, masters, rounding, first);
    } else {
      for (std::int64_t i = first; i < count; ++i) {
        adam_at<1>(numbers, a, masters, rounding, i);
      }
    }
  }
}

// Calls f with how they are kept.
template <class F>
void with_masters(const AdamW& a, F&& f) {
  if (a.is_split()) {
    return f(SplitMasters{a.master.ptr<std::uint16_t>(), a.value.ptr<BF16>()});
  }
  with_type(a.value.present() ? a.value.dtype : DType::kF32, AdamW::kName, [&](auto element) {
    using T = decltype(element);
    f(WholeMasters<T>{a.master.ptr<float>(), a.value.ptr<T>()});
  });
}

template <class M, class G>
void launch_adam(const AdamW& a, cudaStream_t stream) {
  const AdamSettings settings{
      .beta1 = a.beta1, .beta2 = a.beta2, .eps = a.eps, .weight_decay = a.weight_decay};
  const AdamTensors<M, G> tensors{
      .m = a.m.ptr<M>(), .v = a.v.ptr<M>(), .grad = a.grad.ptr<const G>()};
  const std::int64_t count = a.master.count();
  with_masters(a, [&](const auto& masters) {
    with_width(are_aligned(a.master, a.m, a.v) && are_aligned(a.grad, a.value), [&](auto width) {
      constexpr int W = decltype(width)::value;
      const auto blocks = static_cast<unsigned>(
          std::min<std::int64_t>(kMostBlocks, blocks_for(count, kThreads * W)));
      adam_kernel<W><<<blocks, kThreads, 0, stream>>>(settings, a.step_state.ptr<const StepState>(),
                                                      count, tensors, masters,
                                                      MomentRounding<M>(a));
    });
  });
}

// f32 or bf16, as check() has it.
template <class F>
void with_f32_or_bf16(DType type, F&& f) {
  if (type == DType::kBF16) return f(BF16{});
  f(float{});
}

}  // namespace

void CudaOps::exec(const SquaredNorm& a, const Tensor& /*workspace*/) {
  const std::int64_t all = a.g.count();
  if (all == 0) return;
  // What is left of a block that began before g, then the blocks from there on.
  const std::int64_t head = a.start == 0 ? 0 : std::min<std::int64_t>(all, kNormBlock - a.start);
  for (const Tensor& part : {a.g.flat(0, head), a.g.flat(head, all - head)}) {
    const std::int64_t count = part.count();
    if (count == 0) continue;
    const auto blocks = static_cast<unsigned>(
        std::min<std::int64_t>(kMostBlocks, blocks_for(count, kNormBlock * kSquareThreads)));
    with_f32_or_bf16(part.dtype, [&](auto element) {
      using T = decltype(element);
      const auto kernel = is_aligned(part) ? squares_kernel<true, T> : squares_kernel<false, T>;
      kernel<<<blocks, kSquareThreads, 0, stream_>>>(count, part.ptr<const T>(), a.sum.ptr<Limb>());
    });
  }
  carry_kernel<<<1, 1, 0, stream_>>>(a.sum.ptr<std::int64_t>());
  check_launch(SquaredNorm::kName);
}

void CudaOps::exec(const ClipFactor& a, const Tensor& /*workspace*/) {
  clip_kernel<<<1, 1, 0, stream_>>>(a.step_state.ptr<StepState>(), a.sum.ptr<const std::int64_t>());
  check_launch(ClipFactor::kName);
}

void CudaOps::exec(const AdamW& a, const Tensor& /*workspace*/) {
  if (a.master.count() == 0) return;
  with_f32_or_bf16(a.m.dtype, [&](auto moment) {
    with_f32_or_bf16(a.grad.dtype,
                     [&](auto grad) { launch_adam<decltype(moment), decltype(grad)>(a, stream_); });
  });
  check_launch(AdamW::kName);
}

}  // namespace orthant::cuda
