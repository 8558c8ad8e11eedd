// The update: the same sums of squares and the same AdamW, bit for bit, as the cpu backend's.
#include "ops/cuda/backend.h"
#include "ops/cuda/exact_sum.cuh"
#include "ops/cuda/kernel.cuh"
#include "ops/step_state.h"

namespace orthant::cuda {
namespace {

constexpr std::int64_t kMostBlocks = 132 * 8;  // of kernels that walk over their elements

constexpr int kSquareThreads = 128;
constexpr int kRowFloats = kNormBlock + 4;  // of a block in shared memory, against bank conflicts

// A square is exact in double, so that the fma rounds as an addition does.
__device__ inline double add_square(float x, double total) {
  return __fma_rn(static_cast<double>(x), static_cast<double>(x), total);
}

__device__ inline double square_sum(const float* from, std::int64_t count) {
  double total = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    total = add_square(from[i], total);
  }
  return total;
}

__device__ inline double square_sum(const float4* words) {
  double total = 0;
#pragma unroll
  for (int i = 0; i < kNormBlock / 4; ++i) {
    const float4 x = words[i];
    total = add_square(x.w, add_square(x.z, add_square(x.y, add_square(x.x, total))));
  }
  return total;
}

// A thread sums a block of kNormBlock elements; a warp reads the blocks of its threads together.
template <bool kPacks>
__global__ void __launch_bounds__(kSquareThreads)
    squares_kernel(std::int64_t count, const float* g, Limb* sum) {
  __shared__ Limb limbs[kNormLimbs];
  __shared__ float4 rows[kPacks ? kSquareThreads * kRowFloats / 4 : 1];
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
      const auto* from = reinterpret_cast<const float4*>(g + first * kNormBlock);
      float4* const mine = rows + (threadIdx.x - lane) * (kRowFloats / 4);
      constexpr int kWords = kNormBlock / 4;  // of a block
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        const int word = i * 32 + lane;
        mine[word / kWords * (kRowFloats / 4) + word % kWords] = from[word];
      }
      __syncwarp();
      terms.add(square_sum(mine + lane * (kRowFloats / 4)));
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

struct AdamTensors {
  float* master;
  float* m;
  float* v;
  const float* grad;
};

template <int W, class T>
__device__ inline void adam_at(const AdamNumbers& n, const AdamTensors& a, T* value,
                               std::int64_t i) {
  Values<W> master = load<W>(a.master + i);
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
  store<W>(a.m + i, m);
  store<W>(a.v + i, v);
  store<W>(a.master + i, master);
  if (value != nullptr) store<W>(value + i, master);
}

template <int W, class T>
__global__ void adam_kernel(AdamSettings settings, const StepState* state, std::int64_t count,
                            AdamTensors a, T* value) {
  __shared__ AdamNumbers numbers;
  const bool skips = state->skip != 0;
  if (threadIdx.x == 0) numbers = adam_numbers(settings, *state);
  __syncthreads();
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x * W;
  for (std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * W;
       first < count; first += stride) {
    if (skips) {
      if (value == nullptr) return;
      const std::int64_t last = first + W < count ? first + W : count;
      for (std::int64_t i = first; i < last; ++i) {
        value[i] = from_float<T>(a.master[i]);
      }
    } else if (first + W <= count) {
      adam_at<W>(numbers, a, value, first);
    } else {
      for (std::int64_t i = first; i < count; ++i) {
        adam_at<1>(numbers, a, value, i);
      }
    }
  }
}

}  // namespace

void CudaOps::exec(const SquaredNorm& a, const Tensor& /*workspace*/) {
  ORTHANT_CHECK(a.g.dtype == DType::kF32, "squared_norm: the cuda backend has no kernel for {}",
                name_of(a.g.dtype));
  const std::int64_t all = a.g.count();
  if (all == 0) return;
  // What is left of a block that began before g, then the blocks from there on.
  const std::int64_t head = a.start == 0 ? 0 : std::min<std::int64_t>(all, kNormBlock - a.start);
  for (const Tensor& part : {a.g.flat(0, head), a.g.flat(head, all - head)}) {
    const std::int64_t count = part.count();
    if (count == 0) continue;
    const auto blocks = static_cast<unsigned>(
        std::min<std::int64_t>(kMostBlocks, blocks_for(count, kNormBlock * kSquareThreads)));
    const auto kernel = is_aligned(part) ? squares_kernel<true> : squares_kernel<false>;
    kernel<<<blocks, kSquareThreads, 0, stream_>>>(count, part.ptr<const float>(),
                                                   a.sum.ptr<Limb>());
  }
  carry_kernel<<<1, 1, 0, stream_>>>(a.sum.ptr<std::int64_t>());
  check_launch(SquaredNorm::kName);
}

void CudaOps::exec(const ClipFactor& a, const Tensor& /*workspace*/) {
  clip_kernel<<<1, 1, 0, stream_>>>(a.step_state.ptr<StepState>(), a.sum.ptr<const std::int64_t>());
  check_launch(ClipFactor::kName);
}

void CudaOps::exec(const AdamW& a, const Tensor& /*workspace*/) {
  ORTHANT_CHECK(a.m.dtype == DType::kF32 && a.grad.dtype == DType::kF32,
                "adamw: the cuda backend has no kernel for moments in {} and gradients in {}",
                name_of(a.m.dtype), name_of(a.grad.dtype));
  const AdamSettings settings{
      .beta1 = a.beta1, .beta2 = a.beta2, .eps = a.eps, .weight_decay = a.weight_decay};
  const AdamTensors tensors{.master = a.master.ptr<float>(),
                            .m = a.m.ptr<float>(),
                            .v = a.v.ptr<float>(),
                            .grad = a.grad.ptr<const float>()};
  const std::int64_t count = a.master.count();
  if (count == 0) return;
  with_type(a.value.present() ? a.value.dtype : DType::kF32, AdamW::kName, [&](auto element) {
    using T = decltype(element);
    with_width(are_aligned(a.master, a.m, a.v) && are_aligned(a.grad, a.value), [&](auto width) {
      constexpr int W = decltype(width)::value;
      const auto blocks = static_cast<unsigned>(
          std::min<std::int64_t>(kMostBlocks, blocks_for(count, kThreads * W)));
      adam_kernel<W><<<blocks, kThreads, 0, stream_>>>(
          settings, a.step_state.ptr<const StepState>(), count, tensors, a.value.ptr<T>());
    });
  });
  check_launch(AdamW::kName);
}

}  // namespace orthant::cuda
