#include "base/turns.h"

#include <bit>
#include <utility>

#include <sys/mman.h>

#include "base/check.h"

// Of the sanitizers' runtimes (sanitizer/tsan_interface.h, common_interface_defs.h), null where
// they are not linked: who changes stacks tells them.
extern "C" {
[[gnu::weak]] void* tsan_current_fiber() __asm__("__tsan_get_current_fiber");
[[gnu::weak]] void* tsan_create_fiber(unsigned flags) __asm__("__tsan_create_fiber");
[[gnu::weak]] void tsan_destroy_fiber(void* fiber) __asm__("__tsan_destroy_fiber");
[[gnu::weak]] void tsan_switch_to(void* fiber, unsigned flags) __asm__("__tsan_switch_to_fiber");
[[gnu::weak]] void asan_leave(void** fake_stack, const void* to,
                              std::size_t bytes) __asm__("__sanitizer_start_switch_fiber");
[[gnu::weak]] void asan_arrive(void* fake_stack, const void** from,
                               std::size_t* bytes) __asm__("__sanitizer_finish_switch_fiber");
}

namespace orthant {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kStackBytes = std::size_t{8} << 20;  // as much as a thread has
using Words = std::array<unsigned, 2>;  // makecontext() passes these, and no pointers

}  // namespace

Turns::Turns() {
  void* memory = ::mmap(nullptr, kPage + kStackBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) fail_run("no memory for a stack of {} bytes", kStackBytes);
  stack_ = static_cast<std::byte*>(memory);
  if (::mprotect(stack_, kPage, PROT_NONE) != 0) {
    ::munmap(stack_, kPage + kStackBytes);
    fail_run("a stack of {} bytes cannot be protected", kStackBytes);
  }
}

Turns::~Turns() {
  ::munmap(stack_, kPage + kStackBytes);
}

void Turns::run(const std::function<void(int)>& body) {
  ORTHANT_CHECK(body_ == nullptr, "turns are taken within turns");
  body_ = &body;
  at_ = 0;
  has_begun_ = false;
  has_ended_ = {};
  is_ahead_ = false;
  stops_ = false;
  error_ = nullptr;
  std::exception_ptr failed;
  try {
    body(0);
  } catch (...) {
    failed = std::current_exception();
  }
  has_ended_[0] = true;
  stops_ = failed != nullptr;
  if (!has_ended_[1] && (has_begun_ || !stops_)) switch_to(1);
  body_ = nullptr;
  if (fibers_[1] != nullptr) tsan_destroy_fiber(std::exchange(fibers_[1], nullptr));
  if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
  if (failed != nullptr) std::rethrow_exception(failed);
}

bool Turns::give() {
  const int other = 1 - at_;
  if (body_ == nullptr || has_ended_.at(static_cast<std::size_t>(other))) return false;
  switch_to(other);
  if (stops_) throw Stopped();
  if (at_ == 0 && error_ != nullptr) std::rethrow_exception(error_);
  return true;
}

void Turns::give_midway() {
  if (at_ == 0 && !std::exchange(is_ahead_, true)) return;
  give();
}

void Turns::switch_to(int body) {
  const auto from = static_cast<std::size_t>(at_);
  const auto to = static_cast<std::size_t>(body);
  if (body == 1 && !has_begun_) {
    has_begun_ = true;
    ::getcontext(&contexts_[1]);
    contexts_[1].uc_stack.ss_sp = stack_ + kPage;
    contexts_[1].uc_stack.ss_size = kStackBytes;
    contexts_[1].uc_link = nullptr;
    const auto words = std::bit_cast<Words>(this);
    ::makecontext(&contexts_[1], reinterpret_cast<void (*)()>(&Turns::enter), 2, words[0],
                  words[1]);
    if (&tsan_create_fiber != nullptr) {
      fibers_ = {tsan_current_fiber(), tsan_create_fiber(0)};
    }
  }
  at_ = body;
  void* fake_stack = nullptr;
  if (&asan_leave != nullptr) {
    // A body that has ended needs its stack no more.
    asan_leave(has_ended_[from] && from == 1 ? nullptr : &fake_stack,
               body == 1 ? stack_ + kPage : caller_stack_,
               body == 1 ? kStackBytes : caller_stack_bytes_);
  }
  if (fibers_[to] != nullptr) tsan_switch_to(fibers_[to], 0);
  ::swapcontext(&contexts_[from], &contexts_[to]);
  if (&asan_arrive != nullptr) asan_arrive(fake_stack, nullptr, nullptr);
}

void Turns::enter(unsigned first, unsigned second) {
  std::bit_cast<Turns*>(Words{first, second})->work();
}

// Of body(1). It is left for good by the last switch.
void Turns::work() {
  if (&asan_arrive != nullptr) asan_arrive(nullptr, &caller_stack_, &caller_stack_bytes_);
  try {
    (*body_)(1);
  } catch (const Stopped&) {
  } catch (...) {
    error_ = std::current_exception();
  }
  has_ended_[1] = true;
  switch_to(0);
}

}  // namespace orthant
