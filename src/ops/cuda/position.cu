// Rotary positions: a block of threads has a token; sine and cosine of an angle, in double, serve
// all of its heads.
#include "ops/cuda/backend.h"
#include "ops/cuda/kernel.cuh"

namespace orthant::cuda {
namespace {

struct RotaryArgs {
  std::int64_t width;  // of a row of qkv
  int pairs;           // D / 2
  int heads;           // that are rotated
  float sign;          // of the sine
  const std::int32_t* positions;
  const float* inv_freq;
};

template <int W, class T>
__global__ void rotary_kernel(RotaryArgs n, T* qkv) {
  extern __shared__ float table[];  // cosines, then sines
  const std::int64_t t = blockIdx.x;
  const auto position = static_cast<float>(n.positions[t]);
  for (int i = static_cast<int>(threadIdx.x); i < n.pairs; i += static_cast<int>(blockDim.x)) {
    double sine = 0;
    double cosine = 0;
    sincos(static_cast<double>(position * n.inv_freq[i]), &sine, &cosine);
    table[i] = static_cast<float>(cosine);
    table[n.pairs + i] = n.sign * static_cast<float>(sine);
  }
  __syncthreads();
  const int packs = n.pairs / W;
  T* const row = qkv + t * n.width;
  for (int j = static_cast<int>(threadIdx.x); j < n.heads * packs;
       j += static_cast<int>(blockDim.x)) {
    const int first = j % packs * W;
    T* const low = row + static_cast<std::int64_t>(j / packs) * 2 * n.pairs + first;
    T* const high = low + n.pairs;
    const Values<W> x = load<W>(low);
    const Values<W> y = load<W>(high);
    Values<W> out_low;
    Values<W> out_high;
#pragma unroll
    for (int k = 0; k < W; ++k) {
      const float cosine = table[first + k];
      const float sine = table[n.pairs + first + k];
      out_low.at[k] = __fmaf_rn(-y.at[k], sine, x.at[k] * cosine);
      out_high.at[k] = __fmaf_rn(x.at[k], sine, y.at[k] * cosine);
    }
    store<W>(low, out_low);
    store<W>(high, out_high);
  }
}

}  // namespace

void CudaOps::exec(const Rotary& a, const Tensor& /*workspace*/) {
  const std::int64_t T = a.qkv.shape[0];
  const std::int64_t width = a.qkv.shape[1];
  const std::int64_t D = width / (a.H + 2 * a.G);
  if (T == 0) return;
  const RotaryArgs n{.width = width,
                     .pairs = static_cast<int>(D / 2),
                     .heads = static_cast<int>(a.H + a.G),
                     .sign = a.direction == Rotate::kForward ? 1.0F : -1.0F,
                     .positions = a.positions.ptr<const std::int32_t>(),
                     .inv_freq = a.inv_freq.ptr<const float>()};
  const auto shared = static_cast<std::size_t>(D) * sizeof(float);
  with_type(a.qkv.dtype, Rotary::kName, [&](auto element) {
    using E = decltype(element);
    with_width(D % (2 * kPack) == 0 && is_aligned(a.qkv), [&](auto pack) {
      rotary_kernel<decltype(pack)::value>
          <<<static_cast<unsigned>(T), kThreads, shared, stream_>>>(n, a.qkv.ptr<E>());
    });
  });
  check_launch(Rotary::kName);
}

}  // namespace orthant::cuda
