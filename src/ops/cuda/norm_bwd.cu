// The gradients of norms; those of the parameters are added block by block, in a fixed order.
#include "ops/cuda/backend.h"
#include "ops/cuda/norm_rows.cuh"
#include "ops/workspace.h"

namespace orthant::cuda {
namespace {

struct BwdArgs {
  std::int64_t T;
  std::int64_t C;
  std::int64_t block_rows;  // rows of a block of threads
  const float* mean;        // null: RMSNorm
  const float* rstd;
  float* parts;  // [blocks,2,C]: terms of dw, then of db
};

// What a thread has of the rows that its warp or block goes through.
template <class S>
struct Terms {
  Values<S::width> dw[S::chunks];
  Values<S::width> db[S::chunks];
};

// The rows of one call that belong to one t.
template <class T>
struct BwdRow {
  const T* x;
  const T* dy;
  const T* d_residual;  // may be null
  T* dx;
};

template <class S, class T>
__device__ inline void norm_row_backward(const BwdArgs& n, std::int64_t t, const BwdRow<T>& row,
                                         const T* w, Terms<S>& terms, float* shared) {
  constexpr int W = S::width;
  const bool centers = n.mean != nullptr;
  const float mean = centers ? n.mean[t] : 0.0F;
  const float rstd = n.rstd[t];
  float sum_g = 0;
  float sum_gn = 0;
#pragma unroll
  for (int i = 0; i < S::chunks; ++i) {
    const int c = S::column(i);
    if (c >= n.C) continue;
    const Values<W> in = load<W>(row.x + c);
    const Values<W> d = load<W>(row.dy + c);
    const Values<W> scale = load<W>(w + c);
#pragma unroll
    for (int k = 0; k < W; ++k) {
      const float normed = (in.at[k] - mean) * rstd;
      terms.dw[i].at[k] = __fmaf_rn(d.at[k], normed, terms.dw[i].at[k]);
      terms.db[i].at[k] += d.at[k];
      const float g = d.at[k] * scale.at[k];
      sum_g += g;
      sum_gn = __fmaf_rn(g, normed, sum_gn);
    }
  }
  const auto width = static_cast<float>(n.C);
  const float mean_g = centers ? row_sum<S>(sum_g, shared) / width : 0.0F;
  const float mean_gn = row_sum<S>(sum_gn, shared) / width;
#pragma unroll
  for (int i = 0; i < S::chunks; ++i) {
    const int c = S::column(i);
    if (c >= n.C) continue;
    const Values<W> in = load<W>(row.x + c);
    const Values<W> d = load<W>(row.dy + c);
    const Values<W> scale = load<W>(w + c);
    Values<W> residual{};
    if (row.d_residual != nullptr) residual = load<W>(row.d_residual + c);
    Values<W> out;
#pragma unroll
    for (int k = 0; k < W; ++k) {
      const float normed = (in.at[k] - mean) * rstd;
      const float g = __fmaf_rn(d.at[k], scale.at[k], -mean_g);
      out.at[k] = __fmaf_rn(-normed, mean_gn, g) * rstd + residual.at[k];
    }
    store<W>(row.dx + c, out);
  }
}

// Adds the terms of the warps of a block, in their order, into `part` [C].
template <class S>
__device__ inline void add_terms(const Values<S::width>* mine, float* part, std::int64_t C,
                                 float* shared) {
  constexpr int W = S::width;
  const int lane = static_cast<int>(threadIdx.x) % S::row_threads;
  const int row = S::row();
#pragma unroll
  for (int i = 0; i < S::chunks; ++i) {
    const int c = S::column(i);
    Values<W> total = mine[i];
    if constexpr (S::rows > 1) {
      __syncthreads();
#pragma unroll
      for (int k = 0; k < W; ++k) {
        shared[(row * W + k) * S::row_threads + lane] = mine[i].at[k];
      }
      __syncthreads();
      if (row != 0) continue;
      for (int other = 1; other < S::rows; ++other) {
#pragma unroll
        for (int k = 0; k < W; ++k) {
          total.at[k] += shared[(other * W + k) * S::row_threads + lane];
        }
      }
    }
    if (c < C) store<W>(part + c, total);
  }
}

// Rows are copied to shared memory one ahead where they fit: a thread reads what it has copied.
template <class S, class T>
inline constexpr std::size_t kAheadBytes = std::size_t{6} * S::rows* S::row_elements * sizeof(T);
template <class S, class T>
inline constexpr bool kCopiesAhead = S::width > 1 && kAheadBytes<S, T> <= 100 * 1024;

template <class S, class T>
__device__ inline void copy_row(T* to, const T* from, std::int64_t C) {
  constexpr int kEach = 16 / static_cast<int>(sizeof(T));
#pragma unroll
  for (int i = 0; i < S::chunks; ++i) {
    const int c = S::column(i);
    if (c >= C) continue;
#pragma unroll
    for (int word = 0; word < S::width; word += kEach) {
      const auto address = static_cast<unsigned>(__cvta_generic_to_shared(to + c + word));
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from + c + word)
                   : "memory");
    }
  }
}

// The two places of a thread's rows in shared memory, taken in turn.
template <class S, class T>
class RowsAhead {
 public:
  __device__ RowsAhead(uint4* memory, std::int64_t C)
      : C_(C),
        memory_(reinterpret_cast<T*>(memory) + S::row() * 6 * S::row_elements) {}

  __device__ void start(const BwdRow<T>& row, bool exists) {
    if (exists) {
      T* const to = memory_ + next_ * 3 * S::row_elements;
      copy_row<S>(to, row.x, C_);
      copy_row<S>(to + S::row_elements, row.dy, C_);
      if (row.d_residual != nullptr) copy_row<S>(to + 2 * S::row_elements, row.d_residual, C_);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    next_ ^= 1;
  }
  // The row before the one started last.
  __device__ BwdRow<T> finish(const BwdRow<T>& row) {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    const T* const from = memory_ + next_ * 3 * S::row_elements;
    return {.x = from,
            .dy = from + S::row_elements,
            .d_residual = row.d_residual == nullptr ? nullptr : from + 2 * S::row_elements,
            .dx = row.dx};
  }

 private:
  std::int64_t C_;
  T* memory_;
  int next_ = 0;
};

template <class S, class T>
__global__ void __launch_bounds__(S::threads)
    norm_gradient_kernel(BwdArgs n, T* dx, const T* dy, const T* x, const T* w,
                         const T* d_residual) {
  extern __shared__ uint4 memory[];
  constexpr int kShared = S::rows > 1 ? S::rows * S::width * S::row_threads : 32;
  __shared__ float shared[kShared];
  Terms<S> terms{};
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * n.block_rows;
  const std::int64_t last = first + n.block_rows < n.T ? first + n.block_rows : n.T;
  const auto row_of = [&](std::int64_t t) {
    const std::int64_t at = t * n.C;
    return BwdRow<T>{.x = x + at,
                     .dy = dy + at,
                     .d_residual = d_residual == nullptr ? nullptr : d_residual + at,
                     .dx = dx + at};
  };
  const std::int64_t begin = first + S::row();
  if constexpr (kCopiesAhead<S, T>) {
    RowsAhead<S, T> ahead(memory, n.C);
    ahead.start(row_of(begin), begin < last);
    for (std::int64_t t = begin; t < last; t += S::rows) {
      ahead.start(row_of(t + S::rows), t + S::rows < last);
      norm_row_backward<S>(n, t, ahead.finish(row_of(t)), w, terms, shared);
    }
  } else {
    for (std::int64_t t = begin; t < last; t += S::rows) {
      norm_row_backward<S>(n, t, row_of(t), w, terms, shared);
    }
  }
  float* part = n.parts + static_cast<std::int64_t>(blockIdx.x) * 2 * n.C;
  add_terms<S>(terms.dw, part, n.C, shared);
  if (n.mean != nullptr) add_terms<S>(terms.db, part + n.C, n.C, shared);
}

// out[c] = sum over blocks of parts[block][which][c], in an order that depends on sizes alone.
__global__ void add_blocks_kernel(const float* parts, int num_blocks, std::int64_t C, float* dw,
                                  float* db) {
  constexpr int kRows = 8;
  __shared__ float shared[kRows][32];
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * 32 + threadIdx.x;
  const float* from = parts + blockIdx.y * C;
  float total = 0;
  if (c < C) {
    for (int block = static_cast<int>(threadIdx.y); block < num_blocks; block += kRows) {
      total += from[static_cast<std::int64_t>(block) * 2 * C + c];
    }
  }
  shared[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.y != 0 || c >= C) return;
  for (int row = 1; row < kRows; ++row) {
    total += shared[row][threadIdx.x];
  }
  (blockIdx.y == 0 ? dw : db)[c] = total;
}

}  // namespace

void CudaOps::exec(const NormBwd& a, const Tensor& workspace) {
  const std::int64_t T = a.x.shape[0];
  const std::int64_t C = a.x.shape[1];
  const std::int64_t blocks = norm_bwd_blocks(T);
  const BwdArgs n{.T = T,
                  .C = C,
                  .block_rows = (T + blocks - 1) / blocks,
                  .mean = a.mean.ptr<const float>(),
                  .rstd = a.rstd.ptr<const float>(),
                  .parts = workspace.ptr<float>()};
  const bool packs =
      C % kPack == 0 && are_aligned(a.x, a.dy, a.dx) && are_aligned(a.w, a.d_residual);
  with_type(a.x.dtype, NormBwd::kName, [&](auto element) {
    using E = decltype(element);
    with_width(packs, [&](auto width) {
      with_split<decltype(width)::value>(C, NormBwd::kName, [&](auto split) {
        using S = decltype(split);
        constexpr std::size_t kBytes = kCopiesAhead<S, E> ? kAheadBytes<S, E> : 0;
        allow_shared(norm_gradient_kernel<S, E>, kBytes);
        norm_gradient_kernel<S><<<static_cast<unsigned>(blocks), S::threads, kBytes, stream_>>>(
            n, a.dx.ptr<E>(), a.dy.ptr<const E>(), a.x.ptr<const E>(), a.w.ptr<const E>(),
            a.d_residual.ptr<const E>());
      });
    });
  });
  const dim3 grid(blocks_for(C, 32), a.db.present() ? 2 : 1);
  add_blocks_kernel<<<grid, dim3(32, 8), 0, stream_>>>(n.parts, static_cast<int>(blocks), C,
                                                       a.dw.ptr<float>(), a.db.ptr<float>());
  check_launch(NormBwd::kName);
}

}  // namespace orthant::cuda
