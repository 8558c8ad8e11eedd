#include <cfloat>

#include "ops/cuda/backend.h"
#include "ops/cuda/own_attention.cuh"
#include "ops/workspace.h"

namespace orthant::cuda {
namespace {

// A block of threads has N queries of one head and walks over the keys up to the last of them.
template <int N, class T>
__global__ void attention_kernel(OwnAttention n, T* o, float* lse, const T* qkv) {
  extern __shared__ float memory[];
  const int stride = n.D + 1;
  const Tile q{memory, stride};
  const Tile k{q.at + N * stride, stride};
  const Tile v{k.at + N * stride, stride};
  const Tile sum{v.at + N * stride, stride};
  const Tile p{sum.at + N * stride, N + 1};
  float* const max = p.at + N * (N + 1);  // of each query so far
  float* const total = max + N;           // sum of e^(score - max)
  float* const shrink = total + N;        // of what came before

  const int head = static_cast<int>(blockIdx.y);
  const std::int64_t b = blockIdx.z;
  const int group = n.group_of(head);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * N;
  const T* const rows = qkv + b * n.S * n.width();
  const DropoutRule::Step step = n.step();
  const int thread = static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(blockDim.x);

  load_tile(q, N, n.D, rows + n.q(head), n.width(), first, n.S);
  for (int i = thread; i < N * n.D; i += threads) {
    sum.row(i / n.D)[i % n.D] = 0;
  }
  if (thread < N) {
    max[thread] = -INFINITY;
    total[thread] = 0;
  }
  const std::int64_t first_tile = n.first_key(b, first) / N * N;
  for (std::int64_t key = first_tile; key <= first + N - 1 && key < n.S; key += N) {
    __syncthreads();
    load_tile(k, N, n.D, rows + n.k(group), n.width(), key, n.S);
    load_tile(v, N, n.D, rows + n.v(group), n.width(), key, n.S);
    __syncthreads();
    for (int i = thread; i < N * N; i += threads) {
      const int row = i / N;
      const int column = i % N;
      const std::int64_t distance = key + column - first - row;
      const bool is_seen = distance <= 0 && key + column >= n.first_key(b, first + row);
      p.row(row)[column] = is_seen ? __fmaf_rn(n.scale, dot(q.row(row), k.row(column), n.D),
                                               n.slope(head) * static_cast<float>(distance))
                                   : -INFINITY;
    }
    __syncthreads();
    if (thread < N) {
      float highest = max[thread];
      for (int column = 0; column < N; ++column) {
        highest = fmaxf(highest, p.row(thread)[column]);
      }
      // A query of a later document has seen no key yet: any finite number gives zeros.
      const float shift = fmaxf(highest, -FLT_MAX);
      shrink[thread] = exp_of(max[thread] - shift);
      float part = 0;
      for (int column = 0; column < N; ++column) {
        float& weight = p.row(thread)[column];
        weight = exp_of(weight - shift);
        part += weight;
      }
      total[thread] = __fmaf_rn(total[thread], shrink[thread], part);
      max[thread] = highest;
    }
    __syncthreads();
    if (n.sample_ids != nullptr) {
      for (int i = thread; i < N * N; i += threads) {
        p.row(i / N)[i % N] *= n.factor(step, b, head, first + i / N, key + i % N);
      }
      __syncthreads();
    }
    for (int i = thread; i < N * n.D; i += threads) {
      const int row = i / n.D;
      const int d = i % n.D;
      float value = sum.row(row)[d] * shrink[row];
      for (int column = 0; column < N; ++column) {
        value = __fmaf_rn(p.row(row)[column], v.row(column)[d], value);
      }
      sum.row(row)[d] = value;
    }
  }
  __syncthreads();
  for (int i = thread; i < N * n.D; i += threads) {
    const int row = i / n.D;
    if (first + row >= n.S) continue;
    const std::int64_t t = b * n.S + first + row;
    o[(t * n.H + head) * n.D + i % n.D] = from_float<T>(sum.row(row)[i % n.D] / total[row]);
  }
  if (thread < N && first + thread < n.S) {
    lse[(b * n.H + head) * n.S + first + thread] = max[thread] + logf(total[thread]);
  }
}

}  // namespace

void CudaOps::exec(const AttentionFwd& a, const Tensor& workspace) {
  const AttentionShape& n = a.shape;
  if (a.qkv.count() == 0) return;
  if (attention_.has(a)) return attention_.forward(a, workspace);
  const OwnAttention call = own_attention(n, a.slopes, a.positions, a.sample_ids, a.step_state);
  with_type(a.qkv.dtype, AttentionFwd::kName, [&](auto element) {
    using T = decltype(element);
    with_tile(n.D, 4, 1, AttentionFwd::kName, [&](auto tile, std::size_t bytes) {
      constexpr int N = decltype(tile)::value;
      allow_shared(attention_kernel<N, T>, bytes);
      const dim3 grid(blocks_for(n.S, N), static_cast<unsigned>(n.H), static_cast<unsigned>(n.B));
      attention_kernel<N><<<grid, kTileThreads, bytes, stream_>>>(
          call, a.o.ptr<T>(), a.lse.ptr<float>(), a.qkv.ptr<const T>());
    });
  });
  check_launch(AttentionFwd::kName);
}

}  // namespace orthant::cuda
