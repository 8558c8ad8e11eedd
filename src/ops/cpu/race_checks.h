// What the thread sanitizer is told of OpenMP: its library is not instrumented, so that a fork, a
// barrier and a join order nothing in the sanitizer's eyes. In other builds this is nothing.
#pragma once

#if defined(__SANITIZE_THREAD__)
extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
// Of a function that only hands out work: its frame is read before a thread can acquire anything.
#define ORTHANT_UNCHECKED __attribute__((no_sanitize_thread, noinline))
#else
#define ORTHANT_UNCHECKED
#endif

namespace orthant::cpu {

// What a thread did before release() of an address comes before what others do after acquire() of
// it.
inline void release([[maybe_unused]] void* address) {
#if defined(__SANITIZE_THREAD__)
  __tsan_release(address);
#endif
}
inline void acquire([[maybe_unused]] void* address) {
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(address);
#endif
}

}  // namespace orthant::cpu
