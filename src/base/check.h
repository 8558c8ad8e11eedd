// Errors: one exception type that carries the exit status, and ORTHANT_CHECK for what we promise
// each other.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/core.h>

namespace orthant {

// What went wrong, by who can mend it. The value is the exit status of the binary.
enum class Fault : int {
  kRun = 1,   // the run failed
  kUser = 2,  // what the user gave is wrong; nothing was changed
  kPlan = 3,  // the plan does not fit the memory
  kLost = 4,  // a rank was lost or a collective passed its deadline
};

class Error : public std::runtime_error {
 public:
  Error(Fault fault, const std::string& message) : std::runtime_error(message), fault_(fault) {}
  Fault fault() const { return fault_; }

 private:
  Fault fault_;
};

// Bad input: say what was asked, what was found, what to do.
template <class... Args>
[[noreturn]] void fail_user(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(Fault::kUser, fmt::format(format, std::forward<Args>(args)...));
}

// The machine or the run failed.
template <class... Args>
[[noreturn]] void fail_run(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(Fault::kRun, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace orthant

// A promise between parts of the program. The message says what was found.
#define ORTHANT_CHECK(condition, ...) \
  ((condition) ? static_cast<void>(0) \
               : throw ::orthant::Error(::orthant::Fault::kRun, ::fmt::format(__VA_ARGS__)))
