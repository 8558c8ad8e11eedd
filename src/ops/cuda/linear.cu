// Linear layers: products by cuBLASLt, and the column sums of a bias's gradient.
#include "ops/cuda/backend.h"
#include "ops/cuda/kernel.cuh"
#include "ops/workspace.h"

namespace orthant::cuda {
namespace {

constexpr int kColumnPacks = 32;  // of a block of threads
constexpr int kRows = 8;          // that a block of threads reads at once

// Sums of part blockIdx.y of the rows: parts[part][column].
template <int W, class T>
__global__ void column_sums_kernel(std::int64_t rows, std::int64_t columns, float* parts,
                                   const T* x) {
  __shared__ float shared[kRows][kColumnPacks * W];
  const std::int64_t c = (static_cast<std::int64_t>(blockIdx.x) * kColumnPacks + threadIdx.x) * W;
  const std::int64_t each = (rows + gridDim.y - 1) / gridDim.y;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.y) * each;
  const std::int64_t last = first + each < rows ? first + each : rows;
  Values<W> sum{};
  if (c < columns) {
#pragma unroll 4
    for (std::int64_t row = first + threadIdx.y; row < last; row += kRows) {
      const Values<W> v = load<W>(x + row * columns + c);
#pragma unroll
      for (int k = 0; k < W; ++k) {
        sum.at[k] += v.at[k];
      }
    }
  }
#pragma unroll
  for (int k = 0; k < W; ++k) {
    shared[threadIdx.y][threadIdx.x * W + k] = sum.at[k];
  }
  __syncthreads();
  if (threadIdx.y != 0 || c >= columns) return;
  for (int row = 1; row < kRows; ++row) {
#pragma unroll
    for (int k = 0; k < W; ++k) {
      sum.at[k] += shared[row][threadIdx.x * W + k];
    }
  }
  store<W>(parts + static_cast<std::int64_t>(blockIdx.y) * columns + c, sum);
}

// to[c] += sum over parts of parts[part][c], in their order.
__global__ void add_parts_kernel(std::int64_t num_parts, std::int64_t columns, float* to,
                                 const float* parts) {
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (c >= columns) return;
  float sum = 0;
#pragma unroll 8
  for (std::int64_t part = 0; part < num_parts; ++part) {
    sum += parts[part * columns + c];
  }
  to[c] += sum;
}

void add_column_sums(cudaStream_t stream, const Tensor& to, const Tensor& x,
                     const Tensor& workspace) {
  const std::int64_t rows = x.shape[0];
  const std::int64_t columns = x.shape[1];
  const std::int64_t num_parts = column_sum_parts(rows, columns);
  with_type(x.dtype, LinearBwdWeight::kName, [&](auto element) {
    using T = decltype(element);
    with_width(columns % kPack == 0 && is_aligned(x), [&](auto width) {
      constexpr int W = decltype(width)::value;
      const dim3 grid(blocks_for(columns, kColumnPacks * W), static_cast<unsigned>(num_parts));
      column_sums_kernel<W><<<grid, dim3(kColumnPacks, kRows), 0, stream>>>(
          rows, columns, workspace.ptr<float>(), x.ptr<const T>());
    });
  });
  add_parts_kernel<<<blocks_for(columns, 64), 64, 0, stream>>>(num_parts, columns, to.ptr<float>(),
                                                               workspace.ptr<const float>());
  check_launch(LinearBwdWeight::kName);
}

}  // namespace

void CudaOps::exec(const LinearFwd& a, const Tensor& workspace) {
  const Product product = {.d = a.y, .a = a.x, .b = a.w, .bias = a.b, .transposes_b = true};
  if (a.gelu.absent()) return products_.run(product, workspace);
  Product with_gelu = product;
  with_gelu.d = a.gelu;
  with_gelu.gelu = ProductGelu::kForward;
  with_gelu.gelu_x = a.y;
  if (products_.run_with_gelu(with_gelu, workspace)) return;
  products_.run(product, workspace);
  exec(GeluFwd{.y = a.gelu, .x = a.y}, workspace);
}

void CudaOps::exec(const LinearBwdInput& a, const Tensor& workspace) {
  const Product product = {.d = a.dx, .a = a.dy, .b = a.w, .bias = {}};
  if (a.gelu_x.absent()) return products_.run(product, workspace);
  Product with_gelu = product;
  with_gelu.gelu = ProductGelu::kGradient;
  with_gelu.gelu_x = a.gelu_x;
  if (products_.run_with_gelu(with_gelu, workspace)) return;
  products_.run(product, workspace);
  exec(GeluBwd{.dx = a.dx, .dy = a.dx, .x = a.gelu_x}, workspace);
}

void CudaOps::exec(const LinearBwdWeight& a, const Tensor& workspace) {
  products_.run({.d = a.dw, .a = a.dy, .b = a.x, .bias = {}, .transposes_a = true, .adds = true},
                workspace);
  if (a.db.present() && a.x.shape[0] > 0) add_column_sums(stream_, a.db, a.dy, workspace);
}

}  // namespace orthant::cuda
