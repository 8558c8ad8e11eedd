// Attention over a cache: a block of threads has one new token of one head, a warp every eighth
// key.
#include "ops/cuda/backend.h"
#include "ops/cuda/own_attention.cuh"

namespace orthant::cuda {
namespace {

constexpr int kWarps = 8;

struct Cache {
  std::int64_t M;      // tokens that it has room for
  std::int64_t start;  // tokens in it
};

template <class T>
__global__ void append_kernel(OwnAttention n, Cache cache, T* keys, T* values, const T* qkv) {
  const std::int64_t s = blockIdx.x;
  const std::int64_t b = blockIdx.y;
  const std::int64_t row = static_cast<std::int64_t>(n.G) * n.D;
  const T* from = qkv + (b * n.S + s) * n.width();
  const std::int64_t to = (b * cache.M + cache.start + s) * row;
  for (std::int64_t i = threadIdx.x; i < row; i += blockDim.x) {
    keys[to + i] = from[n.k(0) + i];
    values[to + i] = from[n.v(0) + i];
  }
}

// Shared memory: the query, then a sum of values for each warp.
template <class T>
__global__ void cached_kernel(OwnAttention n, Cache cache, T* o, const T* keys, const T* values,
                              const T* qkv) {
  extern __shared__ float memory[];
  __shared__ float maxima[kWarps];
  __shared__ float sums[kWarps];
  const std::int64_t s = blockIdx.x;
  const int head = static_cast<int>(blockIdx.y);
  const std::int64_t b = blockIdx.z;
  const int group = n.group_of(head);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  float* const query = memory;
  float* const mine = memory + (1 + warp) * n.D;
  for (int d = static_cast<int>(threadIdx.x); d < n.D; d += 32 * kWarps) {
    query[d] = to_float(qkv[(b * n.S + s) * n.width() + n.q(head) + d]);
  }
  for (int d = lane; d < n.D; d += 32) {
    mine[d] = 0;
  }
  __syncthreads();
  const std::int64_t last = cache.start + s;  // the token itself
  const std::int64_t row = static_cast<std::int64_t>(n.G) * n.D;
  float max = -INFINITY;
  float sum = 0;
  for (std::int64_t key = warp; key <= last; key += kWarps) {
    const std::int64_t at = (b * cache.M + key) * row + static_cast<std::int64_t>(group) * n.D;
    float score = 0;
    for (int d = lane; d < n.D; d += 32) {
      score = __fmaf_rn(query[d], to_float(keys[at + d]), score);
    }
    score = __fmaf_rn(n.scale, warp_sum(score), n.slope(head) * static_cast<float>(key - last));
    const float highest = fmaxf(max, score);
    const float shrink = exp_of(max - highest);
    const float weight = exp_of(score - highest);
    sum = __fmaf_rn(sum, shrink, weight);
    max = highest;
    for (int d = lane; d < n.D; d += 32) {
      mine[d] = __fmaf_rn(weight, to_float(values[at + d]), mine[d] * shrink);
    }
  }
  if (lane == 0) {
    maxima[warp] = max;
    sums[warp] = sum;
  }
  __syncthreads();
  float highest = -INFINITY;
  for (int i = 0; i < kWarps; ++i) {
    highest = fmaxf(highest, maxima[i]);
  }
  float total = 0;
  for (int i = 0; i < kWarps; ++i) {
    total += sums[i] * exp_of(maxima[i] - highest);
  }
  for (int d = static_cast<int>(threadIdx.x); d < n.D; d += 32 * kWarps) {
    float value = 0;
    for (int i = 0; i < kWarps; ++i) {
      value = __fmaf_rn(exp_of(maxima[i] - highest), memory[(1 + i) * n.D + d], value);
    }
    o[((b * n.S + s) * n.H + head) * n.D + d] = from_float<T>(value / total);
  }
}

}  // namespace

void CudaOps::exec(const AttentionCached& a, const Tensor& /*workspace*/) {
  const AttentionShape& n = a.shape;
  if (a.qkv.count() == 0) return;
  const OwnAttention call = own_attention(n, a.slopes, {}, {}, {});
  const Cache cache{.M = a.k_cache.shape[1], .start = a.start};
  const auto bytes = static_cast<std::size_t>((1 + kWarps) * n.D) * sizeof(float);
  const auto S = static_cast<unsigned>(n.S);
  const auto B = static_cast<unsigned>(n.B);
  with_type(a.qkv.dtype, AttentionCached::kName, [&](auto element) {
    using T = decltype(element);
    append_kernel<<<dim3(S, B), kThreads, 0, stream_>>>(call, cache, a.k_cache.ptr<T>(),
                                                        a.v_cache.ptr<T>(), a.qkv.ptr<const T>());
    allow_shared(cached_kernel<T>, bytes);
    cached_kernel<<<dim3(S, static_cast<unsigned>(n.H), B), 32 * kWarps, bytes, stream_>>>(
        call, cache, a.o.ptr<T>(), a.k_cache.ptr<const T>(), a.v_cache.ptr<const T>(),
        a.qkv.ptr<const T>());
  });
  check_launch(AttentionCached::kName);
}

}  // namespace orthant::cuda
