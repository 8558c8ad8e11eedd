// What the thread sanitizer is told of OpenMP: its library is not instrumented, so that a fork, a
// barrier and a join order nothing in the sanitizer's eyes. In other builds this is nothing.
#pragma once

extern "C" {
// Of the sanitizer's runtime (sanitizer/tsan_interface.h), null where that is not linked.
[[gnu::weak]] void tsan_acquire(void* address) __asm__("__tsan_acquire");
[[gnu::weak]] void tsan_release(void* address) __asm__("__tsan_release");
}

namespace orthant::cpu {

// What a thread did before release() of an address comes before what others do after acquire() of
// it.
inline void release(void* address) {
  if (&tsan_release != nullptr) tsan_release(address);
}
inline void acquire(void* address) {
  if (&tsan_acquire != nullptr) tsan_acquire(address);
}

}  // namespace orthant::cpu
