#include "train/peak.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "ops/cpu/onednn_reference.h"

namespace orthant {

double measure_peak_flops(DType compute) {
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

}  // namespace orthant
