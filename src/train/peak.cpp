#include "train/peak.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "mem/gpus.h"
#include "ops/cpu/onednn_reference.h"

namespace orthant {

namespace {

// Per multiprocessor, from the vendor's figures for the A100 (312 and 19.5 TFLOP/s on 108) and the
// H100 and H200 (989 and 67 on 132), which others of their generation follow.
double gpu_peak_flops(const GpuFacts& gpu, DType compute) {
  const bool is_hopper = gpu.capability >= 90;
  const double bf16 = is_hopper ? 989.4e12 / 132 : 312e12 / 108;
  const double f32 = is_hopper ? 66.9e12 / 132 : 19.5e12 / 108;
  return (compute == DType::kF32 ? f32 : bf16) * gpu.multiprocessors;
}

double measure_cpu_flops(DType compute) {
  using Clock = std::chrono::steady_clock;
  constexpr int kSize = 1024;
  constexpr std::chrono::milliseconds kLimit(300);
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  OneDnnReference product(kSize, compute, cores);
  product.run();  // makes the kernel and wakes the threads
  double best_s = 1e30;
  for (const Clock::time_point start = Clock::now(); Clock::now() - start < kLimit;) {
    const Clock::time_point before = Clock::now();
    product.run();
    best_s = std::min(best_s, std::chrono::duration<double>(Clock::now() - before).count());
  }
  return product.flops() / best_s;
}

}  // namespace

double peak_flops(std::string_view kind, DType compute, int ranks) {
  if (kind != "cuda") return measure_cpu_flops(compute);
  const std::vector<GpuFacts> found = gpu_facts();
  const int used = std::min(ranks, static_cast<int>(found.size()));
  return used * gpu_peak_flops(found.front(), compute);
}

}  // namespace orthant
