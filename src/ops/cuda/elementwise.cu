#include "ops/cuda/backend.h"
#include "ops/cuda/map.cuh"
#include "ops/cuda/philox.cuh"

namespace orthant::cuda {
namespace {

struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Same {
  __device__ float operator()(float a) const { return a; }
};

// y[i] = x[i] where f64 is on one side.
template <class To, class From>
__global__ void convert_kernel(std::int64_t count, To* y, const From* x) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  if constexpr (std::is_same_v<To, double>) {
    y[i] = static_cast<double>(to_float(x[i]));
  } else {
    y[i] = from_float<To>(static_cast<float>(x[i]));
  }
}

// Of the micro-batch: which row of which sample a row is.
struct DropoutRows {
  const std::int64_t* sample_ids;
  std::int64_t S;
  std::int64_t C;
  std::int64_t first_row;
};

template <int W, class T>
__global__ void dropout_kernel(DropoutRule rule, DropoutRows rows, std::int64_t count, T* y,
                               const T* x) {
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * W;
  if (first >= count) return;
  const std::int64_t row = rows.first_row + first / rows.C;
  const std::int64_t sample = rows.sample_ids[row / rows.S];
  const auto element =
      static_cast<std::uint64_t>((sample * rows.S + row % rows.S) * rows.C + first % rows.C);
  bool keeps[W];
  rule.keep<W>(rule.of_step(), element, keeps);
  const Values<W> in = load<W>(x + first);
  Values<W> out;
#pragma unroll
  for (int k = 0; k < W; ++k) {
    // A dropped element is zero even where x is not finite.
    out.at[k] = keeps[k] ? in.at[k] * rule.scale : 0.0F;
  }
  store<W>(y + first, out);
}

template <int W, class T>
__global__ void count_kernel(std::int64_t count, const T* x, unsigned long long* total) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x * W;
  int bad = 0;
  for (std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * W;
       first < count; first += stride) {
    if (first + W <= count) {
      const Values<W> values = load<W>(x + first);
#pragma unroll
      for (int k = 0; k < W; ++k) {
        bad += isfinite(values.at[k]) ? 0 : 1;
      }
    } else {
      for (std::int64_t i = first; i < count; ++i) {
        bad += isfinite(to_float(x[i])) ? 0 : 1;
      }
    }
  }
  bad = warp_sum(bad);
  if (threadIdx.x % 32 == 0 && bad != 0) atomicAdd(total, static_cast<unsigned long long>(bad));
}

}  // namespace

void CudaOps::exec(const Add& a, const Tensor& /*workspace*/) {
  with_type(a.y.dtype, Add::kName, [&](auto element) {
    using T = decltype(element);
    map(stream_, are_aligned(a.y, a.a, a.b), Sum{}, a.y.count(), a.y.ptr<T>(), a.a.ptr<const T>(),
        a.b.ptr<const T>());
  });
  check_launch(Add::kName);
}

void CudaOps::exec(const Accumulate& a, const Tensor& /*workspace*/) {
  const auto add_to = [&](auto sum) {
    using To = decltype(sum);
    with_type(a.x.dtype, Accumulate::kName, [&](auto element) {
      map(stream_, are_aligned(a.y, a.x), Sum{}, a.y.count(), a.y.ptr<To>(), a.y.ptr<const To>(),
          a.x.ptr<const decltype(element)>());
    });
  };
  if (a.y.dtype == DType::kBF16) {
    add_to(BF16{});
  } else {
    add_to(float{});
  }
  check_launch(Accumulate::kName);
}

void CudaOps::exec(const Copy& a, const Tensor& /*workspace*/) {
  if (a.x.dtype == a.y.dtype) {
    // Either side may lie in the host's arena: what is offloaded goes this way.
    ORTHANT_CUDA(cudaMemcpyAsync(a.y.data, a.x.data, static_cast<std::size_t>(a.y.bytes()),
                                 cudaMemcpyDefault, stream_));
    return;
  }
  const std::int64_t count = a.y.count();
  const unsigned blocks = blocks_for(count, kThreads);
  if (count == 0) return;
  if (a.x.dtype == DType::kF64) {
    with_type(a.y.dtype, Copy::kName, [&](auto to) {
      using T = decltype(to);
      convert_kernel<<<blocks, kThreads, 0, stream_>>>(count, a.y.ptr<T>(),
                                                       a.x.ptr<const double>());
    });
  } else if (a.y.dtype == DType::kF64) {
    with_type(a.x.dtype, Copy::kName, [&](auto from) {
      using T = decltype(from);
      convert_kernel<<<blocks, kThreads, 0, stream_>>>(count, a.y.ptr<double>(),
                                                       a.x.ptr<const T>());
    });
  } else {
    with_type(a.x.dtype, Copy::kName, [&](auto from) {
      with_type(a.y.dtype, Copy::kName, [&](auto to) {
        map(stream_, are_aligned(a.y, a.x), Same{}, count, a.y.ptr<decltype(to)>(),
            a.x.ptr<const decltype(from)>());
      });
    });
  }
  check_launch(Copy::kName);
}

void CudaOps::exec(const Zero& a, const Tensor& /*workspace*/) {
  ORTHANT_CUDA(cudaMemsetAsync(a.y.data, 0, static_cast<std::size_t>(a.y.bytes()), stream_));
}

void CudaOps::exec(const Dropout& a, const Tensor& /*workspace*/) {
  const DropoutRule rule = make_dropout_rule(a.step_state, a.site, a.p);
  const DropoutRows rows{.sample_ids = a.sample_ids.ptr<const std::int64_t>(),
                         .S = a.S,
                         .C = a.x.shape[1],
                         .first_row = a.first_row};
  const std::int64_t count = a.x.count();
  if (count == 0) return;
  with_type(a.x.dtype, Dropout::kName, [&](auto element) {
    using T = decltype(element);
    with_width(rows.C % kPack == 0 && are_aligned(a.x, a.y), [&](auto width) {
      constexpr int W = decltype(width)::value;
      dropout_kernel<W><<<blocks_for(count, kThreads * W), kThreads, 0, stream_>>>(
          rule, rows, count, a.y.ptr<T>(), a.x.ptr<const T>());
    });
  });
  check_launch(Dropout::kName);
}

void CudaOps::exec(const CountNonFinite& a, const Tensor& /*workspace*/) {
  constexpr std::int64_t kMostBlocks = 2048;
  const std::int64_t count = a.x.count();
  if (count == 0) return;
  with_type(a.x.dtype, CountNonFinite::kName, [&](auto element) {
    using T = decltype(element);
    with_width(is_aligned(a.x), [&](auto width) {
      constexpr int W = decltype(width)::value;
      const auto blocks = static_cast<unsigned>(
          std::min<std::int64_t>(kMostBlocks, blocks_for(count, kThreads * W)));
      count_kernel<W><<<blocks, kThreads, 0, stream_>>>(count, a.x.ptr<const T>(),
                                                        a.count.ptr<unsigned long long>());
    });
  });
  check_launch(CountNonFinite::kName);
}

}  // namespace orthant::cuda
