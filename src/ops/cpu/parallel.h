// Sharing work out to the OpenMP threads of one rank. What a thread gets must not change any bit of
// a result: shares are whole rows, vectors or blocks.
#pragma once

#include <algorithm>
#include <cstdint>

#include <omp.h>

#include "ops/cpu/race_checks.h"

namespace orthant::cpu::ORTHANT_LEVEL {

struct Range {
  std::int64_t begin;
  std::int64_t end;
};

// Part `index` of `parts` of 0..n-1; boundaries are multiples of `unit`.
inline Range share(std::int64_t n, int parts, int index, std::int64_t unit = 1) {
  const std::int64_t units = (n + unit - 1) / unit;
  return {std::min(n, units * index / parts * unit),
          std::min(n, units * (index + 1) / parts * unit)};
}

// Calls body(thread, threads) on each of up to num_threads threads; one thread costs nothing. Its
// frame is read before a thread can acquire anything, so that the sanitizer does not look at it.
template <class Body>
[[gnu::no_sanitize_thread]] inline void on_threads(int num_threads, Body&& body) {
  if (num_threads <= 1) {
    body(0, 1);
    return;
  }
  char team = 0;
  release(&team);
#pragma omp parallel num_threads(num_threads)
  {
    acquire(&team);
    body(omp_get_thread_num(), omp_get_num_threads());
    release(&team);
  }
  acquire(&team);
}

// Inside of on_threads: no thread goes on before all have come. `team` is one address for all of
// them, and of no other team.
inline void meet(void* team) {
  release(team);
#pragma omp barrier
  acquire(team);
}

// Calls body(first, last) for contiguous parts of 0..n-1. `bytes` is the memory that the whole loop
// touches: a small loop stays on one thread.
template <class Body>
inline void for_shares(int num_threads, std::int64_t n, std::int64_t unit, std::int64_t bytes,
                       Body&& body) {
  constexpr std::int64_t kWorthAThread = 64 << 10;
  const int threads =
      static_cast<int>(std::clamp<std::int64_t>(bytes / kWorthAThread, 1, num_threads));
  on_threads(threads, [&](int thread, int parts) {
    const Range part = share(n, parts, thread, unit);
    if (part.begin < part.end) {
      body(part.begin, part.end);
    }
  });
}

}  // namespace orthant::cpu::ORTHANT_LEVEL
