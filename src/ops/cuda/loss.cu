// Softmax and cross-entropy: a block of threads has a row of logits and reads it once.
#include "ops/cuda/backend.h"
#include "ops/cuda/kernel.cuh"
#include "ops/step_state.h"

namespace orthant::cuda {
namespace {

constexpr int kRowThreads = 512;
constexpr float kNone = -INFINITY;

// A maximum, and the sum of e^(x - maximum).
struct Part {
  float max;
  float sum;
};

template <class T>
__device__ inline Part join(Part a, Part b) {
  const float max = fmaxf(a.max, b.max);
  if (max == kNone) return {kNone, 0};
  return {max, a.sum * exp_for<T>(a.max - max) + b.sum * exp_for<T>(b.max - max)};
}

template <int W, class T>
__device__ inline void add(Part& part, const Values<W>& x) {
  float max = part.max;
#pragma unroll
  for (int k = 0; k < W; ++k) {
    max = fmaxf(max, x.at[k]);
  }
  // Without this a row of -inf is not a number; a NaN stays one.
  if (max == kNone) return;
  if (max > part.max) {
    part.sum *= exp_for<T>(part.max - max);
    part.max = max;
  }
#pragma unroll
  for (int k = 0; k < W; ++k) {
    part.sum += exp_for<T>(x.at[k] - max);
  }
}

struct Columns {
  std::int64_t V;
  std::int64_t first;
  std::int64_t valid;
};

template <int W, class T>
__global__ void __launch_bounds__(kRowThreads)
    softmax_kernel(Columns n, float* parts, const T* logits, const std::int32_t* labels) {
  __shared__ Part shared[kRowThreads / 32];
  const std::int64_t t = blockIdx.x;
  const T* row = logits + t * n.V;
  Part part{kNone, 0};
  const std::int64_t whole = n.valid / W * W;
  for (std::int64_t v = static_cast<std::int64_t>(threadIdx.x) * W; v < whole;
       v += kRowThreads * W) {
    add<W, T>(part, load<W>(row + v));
  }
  if (whole + threadIdx.x < n.valid) add<1, T>(part, load<1>(row + whole + threadIdx.x));
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const Part other{__shfl_xor_sync(0xffffffffu, part.max, step),
                     __shfl_xor_sync(0xffffffffu, part.sum, step)};
    part = join<T>(part, other);
  }
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = part;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int warp = 1; warp < kRowThreads / 32; ++warp) {
    part = join<T>(part, shared[warp]);
  }
  const std::int64_t column = labels[t] - n.first;
  const bool is_here = labels[t] >= 0 && column >= 0 && column < n.valid;
  parts[t * 3] = part.max;
  parts[t * 3 + 1] = part.sum;
  parts[t * 3 + 2] = is_here ? to_float(row[column]) : kNone;
}

// One block, so that the losses are added in an order that depends on T alone.
__global__ void cross_entropy_kernel(std::int64_t N, std::int64_t T, float* losses, float* lses,
                                     StepState* state, const float* parts,
                                     const std::int32_t* labels) {
  __shared__ double shared[32];
  double sum_of_losses = 0;
  for (std::int64_t t = threadIdx.x; t < T; t += blockDim.x) {
    float highest = kNone;
    float label_logit = kNone;
    for (std::int64_t n = 0; n < N; ++n) {
      const float* part = parts + (n * T + t) * 3;
      highest = fmaxf(highest, part[0]);
      label_logit = fmaxf(label_logit, part[2]);
    }
    double sum = 0;
    for (std::int64_t n = 0; n < N; ++n) {
      const float* part = parts + (n * T + t) * 3;
      const double shift = static_cast<double>(part[0]) - static_cast<double>(highest);
      sum += static_cast<double>(part[1]) * (shift == 0 ? 1.0 : exp(shift));
    }
    const double lse = static_cast<double>(highest) + log(sum);
    const double loss = labels[t] < 0 ? 0 : lse - static_cast<double>(label_logit);
    lses[t] = static_cast<float>(lse);
    losses[t] = static_cast<float>(loss);
    sum_of_losses += loss;
  }
  const double total = block_sum(sum_of_losses, shared);
  if (threadIdx.x == 0) state->loss_sum += total;
}

// What the gradients of one row share.
template <class T>
struct GradientRow {
  float lse;
  float scale;
  int valid;            // columns that exist; 0 where the token is masked
  std::int64_t column;  // of the label, if it is here

  template <int W>
  __device__ Values<W> of(const Values<W>& x, int v) const {
    Values<W> d;
#pragma unroll
    for (int k = 0; k < W; ++k) {
      d.at[k] = exp_for<T>(x.at[k] - lse) * scale;
    }
    const std::int64_t at = column - v;
    if ((at >= 0 && at < W) || v + W > valid) {
#pragma unroll
      for (int k = 0; k < W; ++k) {
        if (k == at) d.at[k] = (exp_for<T>(x.at[k] - lse) - 1.0F) * scale;
        if (v + k >= valid) d.at[k] = 0;
      }
    }
    return d;
  }
};

// Two packs at once: the row may be overwritten, so that the next is not read ahead by itself.
template <int W, class T>
__global__ void __launch_bounds__(kRowThreads)
    cross_entropy_gradient_kernel(Columns n, T* dlogits, const T* logits, const float* lses,
                                  const std::int32_t* labels, const StepState* state) {
  const std::int64_t t = blockIdx.x;
  const int label = labels[t];
  const GradientRow<T> gradient{.lse = lses[t],
                                .scale = static_cast<float>(state->inv_tokens * state->loss_scale),
                                .valid = label < 0 ? 0 : static_cast<int>(n.valid),
                                .column = label - n.first};
  const int V = static_cast<int>(n.V);
  const T* const row = logits + t * n.V;
  T* const d_row = dlogits + t * n.V;
  constexpr int kStep = kRowThreads * W;
  for (int v = static_cast<int>(threadIdx.x) * W; v < V; v += 2 * kStep) {
    const Raw<W, T> first = load_raw<W>(row + v);
    const bool has_second = v + kStep < V;
    const Raw<W, T> second = has_second ? load_raw<W>(row + v + kStep) : first;
    store<W>(d_row + v, gradient.of(unpack(first), v));
    if (has_second) store<W>(d_row + v + kStep, gradient.of(unpack(second), v + kStep));
  }
}

}  // namespace

void CudaOps::exec(const SoftmaxPart& a, const Tensor& /*workspace*/) {
  const Columns n{.V = a.logits.shape[1], .first = a.first_column, .valid = a.valid};
  if (a.logits.shape[0] == 0) return;
  with_type(a.logits.dtype, SoftmaxPart::kName, [&](auto element) {
    using T = decltype(element);
    with_width(n.V % kPack == 0 && is_aligned(a.logits), [&](auto width) {
      softmax_kernel<decltype(width)::value>
          <<<static_cast<unsigned>(a.logits.shape[0]), kRowThreads, 0, stream_>>>(
              n, a.part.ptr<float>(), a.logits.ptr<const T>(), a.labels.ptr<const std::int32_t>());
    });
  });
  check_launch(SoftmaxPart::kName);
}

void CudaOps::exec(const CrossEntropyFwd& a, const Tensor& /*workspace*/) {
  cross_entropy_kernel<<<1, 1024, 0, stream_>>>(
      a.parts.shape[0], a.parts.shape[1], a.loss.ptr<float>(), a.lse.ptr<float>(),
      a.step_state.ptr<StepState>(), a.parts.ptr<const float>(),
      a.labels.ptr<const std::int32_t>());
  check_launch(CrossEntropyFwd::kName);
}

void CudaOps::exec(const CrossEntropyBwd& a, const Tensor& /*workspace*/) {
  const Columns n{.V = a.logits.shape[1], .first = a.first_column, .valid = a.valid};
  if (a.logits.shape[0] == 0) return;
  with_type(a.logits.dtype, CrossEntropyBwd::kName, [&](auto element) {
    using T = decltype(element);
    with_width(n.V % kPack == 0 && are_aligned(a.logits, a.dlogits), [&](auto width) {
      cross_entropy_gradient_kernel<decltype(width)::value>
          <<<static_cast<unsigned>(a.logits.shape[0]), kRowThreads, 0, stream_>>>(
              n, a.dlogits.ptr<T>(), a.logits.ptr<const T>(), a.lse.ptr<const float>(),
              a.labels.ptr<const std::int32_t>(), a.step_state.ptr<const StepState>());
    });
  });
  check_launch(CrossEntropyBwd::kName);
}

}  // namespace orthant::cuda
