// Backward of attention by our own kernels: one for dq by tiles of queries, one for dk and dv by
// tiles of keys, each adding in a fixed order. Gradients are made in the workspace, so that they
// may replace queries, keys and values.
#include "ops/cuda/backend.h"
#include "ops/cuda/map.cuh"
#include "ops/cuda/own_attention.cuh"
#include "ops/workspace.h"

namespace orthant::cuda {
namespace {

struct Gradients {
  float* dqkv;       // [T,(H+2G)*D]
  float* row_sums;   // [B,H,S] rowsum(do * o)
  const float* lse;  // [B,H,S]
};

template <class T>
__global__ void row_sums_kernel(OwnAttention n, std::int64_t rows, float* sums, const T* d_o,
                                const T* o) {
  // A warp has a row (b, head, query).
  const std::int64_t row = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (row >= rows) return;
  const std::int64_t query = row % n.S;
  const std::int64_t head = row / n.S % n.H;
  const std::int64_t b = row / n.S / n.H;
  const std::int64_t at = ((b * n.S + query) * n.H + head) * n.D;
  float sum = 0;
  for (int d = static_cast<int>(threadIdx.x) % 32; d < n.D; d += 32) {
    sum = __fmaf_rn(to_float(d_o[at + d]), to_float(o[at + d]), sum);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) sums[row] = sum;
}

// What both kernels do with a pair of tiles: probabilities (times dropout's factor) and the
// gradients of scores, for N queries from `first` and N keys from `key`.
template <int N>
struct Pair {
  Tile q, k, v, d_o;
  Tile p, ds;

  __device__ void fill(const OwnAttention& n, const Gradients& grad, const DropoutRule::Step& step,
                       std::int64_t b, int head, std::int64_t first, std::int64_t key) const {
    const std::int64_t at = (b * n.H + head) * n.S;
    for (int i = static_cast<int>(threadIdx.x); i < N * N; i += static_cast<int>(blockDim.x)) {
      const int row = i / N;
      const int column = i % N;
      const std::int64_t query = first + row;
      const std::int64_t distance = key + column - query;
      if (distance > 0 || query >= n.S || key + column < n.first_key(b, query)) {
        p.row(row)[column] = 0;
        ds.row(row)[column] = 0;
        continue;
      }
      const float score = __fmaf_rn(n.scale, dot(q.row(row), k.row(column), n.D),
                                    n.slope(head) * static_cast<float>(distance));
      const float weight = exp_of(score - grad.lse[at + query]);
      const float factor = n.factor(step, b, head, query, key + column);
      const float d_weight = dot(d_o.row(row), v.row(column), n.D) * factor;
      p.row(row)[column] = weight * factor;
      ds.row(row)[column] = weight * (d_weight - grad.row_sums[at + query]) * n.scale;
    }
  }
};

template <int N>
__device__ inline Pair<N> pair_in(float* memory, int D) {
  const int stride = D + 1;
  const auto tile = [&](int index) {
    return Tile{memory + index * N * stride, stride};
  };
  float* const squares = memory + 4 * N * stride;
  return {
      tile(0), tile(1), tile(2), tile(3), Tile{squares, N + 1}, Tile{squares + N * (N + 1), N + 1}};
}

// A thread's elements of a [N,D] sum: index threadIdx.x + i * blockDim.x.
template <int N, class T>
__global__ void query_gradient_kernel(OwnAttention n, Gradients grad, const T* d_o, const T* qkv) {
  extern __shared__ float memory[];
  const Pair<N> pair = pair_in<N>(memory, n.D);
  const Tile sum{memory + 4 * N * (n.D + 1) + 2 * N * (N + 1), n.D + 1};
  const int head = static_cast<int>(blockIdx.y);
  const std::int64_t b = blockIdx.z;
  const int group = n.group_of(head);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * N;
  const T* const rows = qkv + b * n.S * n.width();
  const DropoutRule::Step step = n.step();
  const std::int64_t out_width = static_cast<std::int64_t>(n.H) * n.D;
  load_tile(pair.q, N, n.D, rows + n.q(head), n.width(), first, n.S);
  load_tile(pair.d_o, N, n.D, d_o + b * n.S * out_width + n.q(head), out_width, first, n.S);
  for (int i = static_cast<int>(threadIdx.x); i < N * n.D; i += static_cast<int>(blockDim.x)) {
    sum.row(i / n.D)[i % n.D] = 0;
  }
  const std::int64_t first_tile = n.first_key(b, first) / N * N;
  for (std::int64_t key = first_tile; key <= first + N - 1 && key < n.S; key += N) {
    __syncthreads();
    load_tile(pair.k, N, n.D, rows + n.k(group), n.width(), key, n.S);
    load_tile(pair.v, N, n.D, rows + n.v(group), n.width(), key, n.S);
    __syncthreads();
    pair.fill(n, grad, step, b, head, first, key);
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < N * n.D; i += static_cast<int>(blockDim.x)) {
      const int row = i / n.D;
      const int d = i % n.D;
      float value = sum.row(row)[d];
      for (int column = 0; column < N; ++column) {
        value = __fmaf_rn(pair.ds.row(row)[column], pair.k.row(column)[d], value);
      }
      sum.row(row)[d] = value;
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < N * n.D; i += static_cast<int>(blockDim.x)) {
    const std::int64_t query = first + i / n.D;
    if (query >= n.S) continue;
    grad.dqkv[(b * n.S + query) * n.width() + n.q(head) + i % n.D] = sum.row(i / n.D)[i % n.D];
  }
}

// Of all query heads of a group, in their order.
template <int N, class T>
__global__ void key_gradient_kernel(OwnAttention n, Gradients grad, const T* d_o, const T* qkv) {
  extern __shared__ float memory[];
  const Pair<N> pair = pair_in<N>(memory, n.D);
  const Tile dk{memory + 4 * N * (n.D + 1) + 2 * N * (N + 1), n.D + 1};
  const Tile dv{dk.at + N * (n.D + 1), n.D + 1};
  const int group = static_cast<int>(blockIdx.y);
  const std::int64_t b = blockIdx.z;
  const std::int64_t key = static_cast<std::int64_t>(blockIdx.x) * N;
  const T* const rows = qkv + b * n.S * n.width();
  const DropoutRule::Step step = n.step();
  const std::int64_t out_width = static_cast<std::int64_t>(n.H) * n.D;
  load_tile(pair.k, N, n.D, rows + n.k(group), n.width(), key, n.S);
  load_tile(pair.v, N, n.D, rows + n.v(group), n.width(), key, n.S);
  for (int i = static_cast<int>(threadIdx.x); i < N * n.D; i += static_cast<int>(blockDim.x)) {
    dk.row(i / n.D)[i % n.D] = 0;
    dv.row(i / n.D)[i % n.D] = 0;
  }
  const int heads = n.H / n.G;
  for (int head = group * heads; head < (group + 1) * heads; ++head) {
    // Queries of later documents do not see these keys.
    for (std::int64_t first = key; first < n.S && n.first_key(b, first) < key + N; first += N) {
      __syncthreads();
      load_tile(pair.q, N, n.D, rows + n.q(head), n.width(), first, n.S);
      load_tile(pair.d_o, N, n.D, d_o + b * n.S * out_width + n.q(head), out_width, first, n.S);
      __syncthreads();
      pair.fill(n, grad, step, b, head, first, key);
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < N * n.D; i += static_cast<int>(blockDim.x)) {
        const int column = i / n.D;
        const int d = i % n.D;
        float key_value = dk.row(column)[d];
        float value = dv.row(column)[d];
        for (int row = 0; row < N; ++row) {
          key_value = __fmaf_rn(pair.ds.row(row)[column], pair.q.row(row)[d], key_value);
          value = __fmaf_rn(pair.p.row(row)[column], pair.d_o.row(row)[d], value);
        }
        dk.row(column)[d] = key_value;
        dv.row(column)[d] = value;
      }
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < N * n.D; i += static_cast<int>(blockDim.x)) {
    const std::int64_t token = key + i / n.D;
    if (token >= n.S) continue;
    float* const to = grad.dqkv + (b * n.S + token) * n.width() + i % n.D;
    to[n.k(group)] = dk.row(i / n.D)[i % n.D];
    to[n.v(group)] = dv.row(i / n.D)[i % n.D];
  }
}

struct Identity {
  __device__ float operator()(float x) const { return x; }
};

}  // namespace

void CudaOps::exec(const AttentionBwd& a, const Tensor& workspace) {
  const AttentionShape& n = a.shape;
  if (a.qkv.count() == 0) return;
  if (attention_.has(a)) return attention_.backward(a, workspace);
  const OwnAttention call = own_attention(n, a.slopes, a.positions, a.sample_ids, a.step_state);
  const Gradients grad{.dqkv = workspace.ptr<float>(),
                       .row_sums = workspace.ptr<float>() + a.qkv.count(),
                       .lse = a.lse.ptr<const float>()};
  const std::int64_t rows = n.B * n.H * n.S;
  with_type(a.qkv.dtype, AttentionBwd::kName, [&](auto element) {
    using T = decltype(element);
    const T* d_o = a.do_.ptr<const T>();
    const T* qkv = a.qkv.ptr<const T>();
    row_sums_kernel<<<blocks_for(rows * 32, kThreads), kThreads, 0, stream_>>>(
        call, rows, grad.row_sums, d_o, a.o.ptr<const T>());
    with_tile(n.D, 6, 2, AttentionBwd::kName, [&](auto tile, std::size_t bytes) {
      constexpr int N = decltype(tile)::value;
      allow_shared(query_gradient_kernel<N, T>, bytes);
      allow_shared(key_gradient_kernel<N, T>, bytes);
      dim3 grid(blocks_for(n.S, N), static_cast<unsigned>(n.H), static_cast<unsigned>(n.B));
      query_gradient_kernel<N><<<grid, kTileThreads, bytes, stream_>>>(call, grad, d_o, qkv);
      grid.y = static_cast<unsigned>(n.G);
      key_gradient_kernel<N><<<grid, kTileThreads, bytes, stream_>>>(call, grad, d_o, qkv);
    });
    map(stream_, are_aligned(a.dqkv), Identity{}, a.dqkv.count(), a.dqkv.ptr<T>(),
        static_cast<const float*>(grad.dqkv));
  });
  check_launch(AttentionBwd::kName);
}

}  // namespace orthant::cuda
