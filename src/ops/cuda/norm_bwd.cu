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

// What a thread has of the rows that it goes through: what they add to dw and db.
template <class S, bool kCenters>
struct Terms {
  Values<S::width> dw[S::chunks];
  Values<S::width> db[kCenters ? S::chunks : 1];
};

// The rows of one call that belong to one t.
template <class T>
struct BwdRow {
  const T* x;
  const T* dy;
  const T* d_residual;  // may be null
  T* dx;
};

// (x - mean) / deviation of a row and dy w, kept from the sums to the gradients where registers
// allow it; else they are made twice.
template <class S, bool kCenters>
inline constexpr bool kKeeps = S::width > 1 && S::chunks <= (kCenters ? 2 : 3);

// The mean of g over a row, where it centers, and that of g times what is normed.
template <bool kCenters>
using GradientSums = Sums<kCenters ? 2 : 1>;
template <class S, bool kCenters>
using SumGradient = RowSums<S, kCenters ? 2 : 1>;

template <class S, bool kCenters, class T>
class RowGradient {
 public:
  static constexpr int W = S::width;

  __device__ RowGradient(const BwdArgs& n, const T* w)
      : C_(static_cast<int>(n.C)),
        mean_(n.mean),
        rstd_(n.rstd) {
#pragma unroll
    for (int i = 0; i < S::chunks; ++i) {
      if (S::column(i) < C_) w_[i] = load_raw<W>(w + S::column(i));
    }
  }

  __device__ void run(std::int64_t t, const BwdRow<T>& row, Terms<S, kCenters>& terms,
                      SumGradient<S, kCenters>& sum_row) const {
    const float mean = kCenters ? mean_[t] : 0.0F;
    const float rstd = rstd_[t];
    Values<W> normed[kKeeps<S, kCenters> ? S::chunks : 1];
    Values<W> g[kKeeps<S, kCenters> ? S::chunks : 1];
    GradientSums<kCenters> sums{};
    constexpr int kNormed = kCenters ? 1 : 0;  // the second of them
#pragma unroll
    for (int i = 0; i < S::chunks; ++i) {
      if (S::column(i) >= C_) continue;
      const int kept = kKeeps<S, kCenters> ? i : 0;
      const Values<W> d = load<W>(row.dy + S::column(i));
      set(row, i, d, mean, rstd, normed[kept], g[kept]);
#pragma unroll
      for (int k = 0; k < W; ++k) {
        terms.dw[i].at[k] = __fmaf_rn(d.at[k], normed[kept].at[k], terms.dw[i].at[k]);
        if constexpr (kCenters) {
          terms.db[i].at[k] += d.at[k];
          sums.of[0] += g[kept].at[k];
        }
        sums.of[kNormed] = __fmaf_rn(g[kept].at[k], normed[kept].at[k], sums.of[kNormed]);
      }
    }
    const GradientSums<kCenters> means = sum_row(sums);
    const auto width = static_cast<float>(C_);
    const float mean_g = kCenters ? means.of[0] / width : 0.0F;
    const float mean_gn = means.of[kNormed] / width;
#pragma unroll
    for (int i = 0; i < S::chunks; ++i) {
      const int c = S::column(i);
      if (c >= C_) continue;
      const int kept = kKeeps<S, kCenters> ? i : 0;
      if constexpr (!kKeeps<S, kCenters>) {
        set(row, i, load<W>(row.dy + c), mean, rstd, normed[kept], g[kept]);
      }
      Values<W> residual{};
      if (row.d_residual != nullptr) residual = load<W>(row.d_residual + c);
      Values<W> out;
#pragma unroll
      for (int k = 0; k < W; ++k) {
        const float centered = g[kept].at[k] - mean_g;
        out.at[k] = __fmaf_rn(-normed[kept].at[k], mean_gn, centered) * rstd + residual.at[k];
      }
      store<W>(row.dx + c, out);
    }
  }

 private:
  __device__ void set(const BwdRow<T>& row, int i, const Values<W>& d, float mean, float rstd,
                      Values<W>& normed, Values<W>& g) const {
    const Values<W> x = load<W>(row.x + S::column(i));
    const Values<W> w = unpack(w_[i]);
#pragma unroll
    for (int k = 0; k < W; ++k) {
      normed.at[k] = (x.at[k] - mean) * rstd;
      g.at[k] = d.at[k] * w.at[k];
    }
  }

  int C_;
  const float* mean_;
  const float* rstd_;
  Raw<W, T> w_[S::chunks];
};

// Adds the terms of the rows of a block, in their order, into `part` [C], by way of `sums` [C] in
// shared memory where a block has several rows at once.
template <class S>
__device__ inline void add_terms(const Values<S::width>* mine, float* part, int C, float* sums) {
  constexpr int W = S::width;
  for (int row = 0; row < S::rows; ++row) {
    if (S::rows > 1) __syncthreads();
    if (row != S::row()) continue;
#pragma unroll
    for (int i = 0; i < S::chunks; ++i) {
      const int c = S::column(i);
      if (c >= C) continue;
      Values<W> total = mine[i];
      if (row > 0) {
        const Values<W> before = load<W>(sums + c);
#pragma unroll
        for (int k = 0; k < W; ++k) {
          total.at[k] = before.at[k] + total.at[k];
        }
      }
      store<W>(row + 1 == S::rows ? part + c : sums + c, total);
    }
  }
}

// Rows are copied to shared memory one ahead where they fit, on sm_80 too: a thread reads what it
// has copied.
template <class S, class T>
inline constexpr std::size_t kAheadBytes = std::size_t{6} * S::rows* S::row_elements * sizeof(T);
template <class S, class T>
inline constexpr bool kCopiesAhead = S::width > 1 && kAheadBytes<S, T> <= 160 * 1024;
// The sums of add_terms() take the same place.
template <class S, class T>
inline constexpr std::size_t kSharedBytes = kCopiesAhead<S, T> ? kAheadBytes<S, T>
                                            : S::rows > 1      ? S::row_elements * sizeof(float)
                                                               : 0;

template <class S, class T>
__device__ inline void copy_row(T* to, const T* from, int C) {
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
  __device__ RowsAhead(uint4* memory, int C)
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
  int C_;
  T* memory_;
  int next_ = 0;
};

// Two blocks a multiprocessor, but for rows whose terms take too many registers.
template <class S, bool kCenters>
inline constexpr int kBlocksAtOnce = S::threads > 384 || (kCenters && S::chunks > 3) ? 1 : 2;

template <class S, bool kCenters, class T>
__global__ void __launch_bounds__(S::threads, (kBlocksAtOnce<S, kCenters>))
    norm_gradient_kernel(BwdArgs n, T* dx, const T* dy, const T* x, const T* w,
                         const T* d_residual) {
  extern __shared__ uint4 memory[];
  __shared__ GradientSums<kCenters> sums[SumGradient<S, kCenters>::kMemory];
  SumGradient<S, kCenters> sum_row(sums);
  Terms<S, kCenters> terms{};
  const RowGradient<S, kCenters, T> gradient(n, w);
  const int C = static_cast<int>(n.C);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * n.block_rows;
  const std::int64_t last = first + n.block_rows < n.T ? first + n.block_rows : n.T;
  const auto row_of = [&](std::int64_t t) {
    const std::int64_t at = t * C;
    return BwdRow<T>{.x = x + at,
                     .dy = dy + at,
                     .d_residual = d_residual == nullptr ? nullptr : d_residual + at,
                     .dx = dx + at};
  };
  const std::int64_t begin = first + S::row();
  if constexpr (kCopiesAhead<S, T>) {
    RowsAhead<S, T> ahead(memory, C);
    ahead.start(row_of(begin), begin < last);
    for (std::int64_t t = begin; t < last; t += S::rows) {
      ahead.start(row_of(t + S::rows), t + S::rows < last);
      gradient.run(t, ahead.finish(row_of(t)), terms, sum_row);
    }
    asm volatile("cp.async.wait_group 0;" ::: "memory");
  } else {
    for (std::int64_t t = begin; t < last; t += S::rows) {
      gradient.run(t, row_of(t), terms, sum_row);
    }
  }
  float* const part = n.parts + static_cast<std::int64_t>(blockIdx.x) * 2 * C;
  auto* const total = reinterpret_cast<float*>(memory);
  add_terms<S>(terms.dw, part, C, total);
  if constexpr (kCenters) add_terms<S>(terms.db, part + C, C, total);
}

// out[c] = sum over blocks of parts[block][which][c], in an order that depends on sizes alone.
__global__ void add_blocks_kernel(const float* parts, int num_blocks, std::int64_t C, float* dw,
                                  float* db) {
  constexpr int kRows = 32;
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
      with_split<decltype(width)::value, ShortRows::kInSeveral>(C, NormBwd::kName, [&](auto split) {
        using S = decltype(split);
        const auto start = [&](auto kernel) {
          constexpr std::size_t kBytes = kSharedBytes<S, E>;
          allow_shared(kernel, kBytes);
          kernel<<<static_cast<unsigned>(blocks), S::threads, kBytes, stream_>>>(
              n, a.dx.ptr<E>(), a.dy.ptr<const E>(), a.x.ptr<const E>(), a.w.ptr<const E>(),
              a.d_residual.ptr<const E>());
        };
        if (n.mean != nullptr) {
          start(norm_gradient_kernel<S, true, E>);
        } else {
          start(norm_gradient_kernel<S, false, E>);
        }
      });
    });
  });
  const dim3 grid(blocks_for(C, 32), a.db.present() ? 2 : 1);
  add_blocks_kernel<<<grid, dim3(32, 32), 0, stream_>>>(n.parts, static_cast<int>(blocks), C,
                                                        a.dw.ptr<float>(), a.db.ptr<float>());
  check_launch(NormBwd::kName);
}

}  // namespace orthant::cuda
