// Turns: two bodies of work that take turns on one thread, each on a stack of its own. While one
// waits for something, the other goes on.
#pragma once

#include <array>
#include <cstddef>
#include <exception>
#include <functional>

#include <ucontext.h>

namespace orthant {

class Turns {
 public:
  static constexpr int kBodies = 2;

  Turns();
  ~Turns();
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  // body(0) and body(1), which begins when body(0) first gives its turn away. An error of one ends
  // both: it unwinds the other from where that stands, and is thrown here.
  void run(const std::function<void(int)>& body);

  // In a body: lets the other one go on. False: there is no other, or it has ended.
  bool give();
  // The same in the middle of work, but for the first time in body(0), which so keeps ahead of
  // body(1): what one starts at the end of its work is done while the other is in the midst of its
  // own.
  void give_midway();

 private:
  struct Stopped {};  // unwinds a body whose other one has failed
  static void enter(unsigned first, unsigned second);
  void work();
  void switch_to(int body);

  std::byte* stack_ = nullptr;  // of body(1), behind a page that nobody may touch
  std::array<ucontext_t, kBodies> contexts_{};
  std::array<void*, kBodies> fibers_{};  // what the thread sanitizer knows them by
  const void* caller_stack_ = nullptr;   // of body(0), for the address sanitizer
  std::size_t caller_stack_bytes_ = 0;
  const std::function<void(int)>* body_ = nullptr;  // null: none is at work
  int at_ = 0;                                      // whose turn it is
  bool has_begun_ = false;                          // body(1)
  std::array<bool, kBodies> has_ended_{};
  bool is_ahead_ = false;
  bool stops_ = false;
  std::exception_ptr error_;  // of body(1)
};

}  // namespace orthant
