// Embedding tables. Backward adds the tokens of a row in their order, as the cpu backend does: the
// tokens are counted by row, placed, put in order, and then a block of threads adds those of one
// row.
#include "ops/cuda/backend.h"
#include "ops/cuda/kernel.cuh"

namespace orthant::cuda {
namespace {

template <int W, class T>
__global__ void look_up_kernel(std::int64_t C, std::int64_t R, std::int64_t first_row, bool adds,
                               const std::int32_t* ids, T* y, const T* table) {
  const std::int64_t t = blockIdx.x;
  const std::int64_t row = ids[t] - first_row;
  const bool is_here = row >= 0 && row < R;
  if (adds && !is_here) return;
  for (std::int64_t c = static_cast<std::int64_t>(threadIdx.x) * W; c < C;
       c += static_cast<std::int64_t>(blockDim.x) * W) {
    Values<W> out{};
    if (is_here) out = load<W>(table + row * C + c);
    if (adds) {
      const Values<W> before = load<W>(y + t * C + c);
#pragma unroll
      for (int k = 0; k < W; ++k) {
        out.at[k] = before.at[k] + out.at[k];
      }
    }
    store<W>(y + t * C + c, out);
  }
}

// The tokens of each row that lies here.
struct TokenLists {
  std::int64_t R;
  std::int64_t T;
  std::int64_t first_row;
  const std::int32_t* ids;
  int* begins;   // [R+1]  where a row's tokens begin; first their counts
  int* placed;   // [R+1]  how many of them are placed
  int* tokens;   // [T]    by row
  int* ordered;  // [T]    and within a row in order
  __device__ std::int64_t row_of(std::int64_t t) const {
    const std::int64_t row = ids[t] - first_row;
    return row >= 0 && row < R ? row : -1;
  }
};

__device__ inline std::int64_t thread_index() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__global__ void count_tokens_kernel(TokenLists lists) {
  const std::int64_t t = thread_index();
  if (t >= lists.T) return;
  const std::int64_t row = lists.row_of(t);
  if (row >= 0) atomicAdd(lists.begins + row + 1, 1);
}

// Running sums of the counts, by one block: each thread has a run of rows.
__global__ void sum_counts_kernel(TokenLists lists) {
  __shared__ int sums[1024];
  const std::int64_t each = (lists.R + blockDim.x - 1) / blockDim.x;
  const std::int64_t first = 1 + static_cast<std::int64_t>(threadIdx.x) * each;
  const std::int64_t last = min(first + each, lists.R + 1);
  int sum = 0;
  for (std::int64_t row = first; row < last; ++row) {
    sum += lists.begins[row];
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (unsigned step = 1; step < blockDim.x; step *= 2) {
    const int before = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
    __syncthreads();
    sums[threadIdx.x] += before;
    __syncthreads();
  }
  int total = sums[threadIdx.x] - sum;
  for (std::int64_t row = first; row < last; ++row) {
    total += lists.begins[row];
    lists.begins[row] = total;
  }
}

__global__ void place_tokens_kernel(TokenLists lists) {
  const std::int64_t t = thread_index();
  if (t >= lists.T) return;
  const std::int64_t row = lists.row_of(t);
  if (row < 0) return;
  const int at = lists.begins[row] + atomicAdd(lists.placed + row, 1);
  lists.tokens[at] = static_cast<int>(t);
}

// A token's place is the number of earlier tokens of its row.
__global__ void order_tokens_kernel(TokenLists lists) {
  const std::int64_t t = thread_index();
  if (t >= lists.T) return;
  const std::int64_t row = lists.row_of(t);
  if (row < 0) return;
  const int begin = lists.begins[row];
  const int end = lists.begins[row + 1];
  int earlier = 0;
  for (int i = begin; i < end; ++i) {
    earlier += lists.tokens[i] < t ? 1 : 0;
  }
  lists.ordered[begin + earlier] = static_cast<int>(t);
}

template <int W, class T>
__global__ void add_tokens_kernel(TokenLists lists, std::int64_t C, float* dtable, const T* dy) {
  const std::int64_t row = blockIdx.x;
  const int begin = lists.begins[row];
  const int end = lists.begins[row + 1];
  if (begin == end) return;
  for (std::int64_t c = static_cast<std::int64_t>(threadIdx.x) * W; c < C;
       c += static_cast<std::int64_t>(blockDim.x) * W) {
    Values<W> sum = load<W>(dtable + row * C + c);
    for (int i = begin; i < end; ++i) {
      const Values<W> d = load<W>(dy + static_cast<std::int64_t>(lists.ordered[i]) * C + c);
#pragma unroll
      for (int k = 0; k < W; ++k) {
        sum.at[k] += d.at[k];
      }
    }
    store<W>(dtable + row * C + c, sum);
  }
}

// Whole warps, no more than the packs of a row.
int row_threads(std::int64_t C, int width) {
  const std::int64_t packs = (C + width - 1) / width;
  return static_cast<int>(std::min<std::int64_t>(kThreads, (packs + 31) / 32 * 32));
}

}  // namespace

void CudaOps::exec(const EmbeddingFwd& a, const Tensor& /*workspace*/) {
  const std::int64_t C = a.y.shape[1];
  if (a.y.count() == 0) return;
  with_type(a.y.dtype, EmbeddingFwd::kName, [&](auto element) {
    using T = decltype(element);
    with_width(C % kPack == 0 && are_aligned(a.y, a.table), [&](auto width) {
      constexpr int W = decltype(width)::value;
      look_up_kernel<W><<<static_cast<unsigned>(a.y.shape[0]), row_threads(C, W), 0, stream_>>>(
          C, a.table.shape[0], a.first_row, a.write == Write::kAdd, a.ids.ptr<const std::int32_t>(),
          a.y.ptr<T>(), a.table.ptr<const T>());
    });
  });
  check_launch(EmbeddingFwd::kName);
}

void CudaOps::exec(const EmbeddingBwd& a, const Tensor& workspace) {
  const std::int64_t C = a.dy.shape[1];
  const std::int64_t R = a.dtable.shape[0];
  const std::int64_t T = a.dy.shape[0];
  if (a.dy.count() == 0) return;
  int* const memory = workspace.ptr<int>();
  const TokenLists lists{.R = R,
                         .T = T,
                         .first_row = a.first_row,
                         .ids = a.ids.ptr<const std::int32_t>(),
                         .begins = memory,
                         .placed = memory + R + 1,
                         .tokens = memory + 2 * (R + 1),
                         .ordered = memory + 2 * (R + 1) + T};
  const unsigned blocks = blocks_for(T, kThreads);
  ORTHANT_CUDA(
      cudaMemsetAsync(memory, 0, static_cast<std::size_t>(2 * (R + 1)) * sizeof(int), stream_));
  count_tokens_kernel<<<blocks, kThreads, 0, stream_>>>(lists);
  sum_counts_kernel<<<1, 1024, 0, stream_>>>(lists);
  place_tokens_kernel<<<blocks, kThreads, 0, stream_>>>(lists);
  order_tokens_kernel<<<blocks, kThreads, 0, stream_>>>(lists);
  with_type(a.dy.dtype, EmbeddingBwd::kName, [&](auto element) {
    using E = decltype(element);
    with_width(C % kPack == 0 && are_aligned(a.dy, a.dtable), [&](auto width) {
      constexpr int W = decltype(width)::value;
      add_tokens_kernel<W><<<static_cast<unsigned>(R), row_threads(C, W), 0, stream_>>>(
          lists, C, a.dtable.ptr<float>(), a.dy.ptr<const E>());
    });
  });
  check_launch(EmbeddingBwd::kName);
}

}  // namespace orthant::cuda
