// LookGuard: whether a process whose GPU stands still is to be given up. A thread looks at the
// calls that the GPU is in; it may itself wait for CUDA or NCCL, so another one asks this.
#pragma once

#include <algorithm>
#include <cstdint>

namespace orthant {

class LookGuard {
 public:
  enum class Verdict : std::uint8_t {
    kWell,
    kStuck,  // nobody has looked for the deadline
    kEnd,    // after a failure nobody looks, or the GPU is still in a call
  };
  static constexpr double kEveryS = 0.1;  // between two questions

  // So long after a failure a process may take to end by itself, s. `deadline_s` 0: none.
  static double grace_s(double deadline_s) {
    constexpr double kMostS = 10;
    return deadline_s > 0 ? std::min(kMostS, deadline_s) : kMostS;
  }

  // Counts its questions, not the clock: a process that was stopped for a while is not late.
  Verdict ask(std::int64_t num_looks, bool is_at_work, bool has_failed, double deadline_s) {
    without_look_s_ = num_looks == num_looks_ ? without_look_s_ + kEveryS : 0;
    num_looks_ = num_looks;
    if (!has_failed) {
      return deadline_s > 0 && without_look_s_ > deadline_s ? Verdict::kStuck : Verdict::kWell;
    }
    failed_s_ += kEveryS;
    const double grace = grace_s(deadline_s);
    const bool stands_still = is_at_work || without_look_s_ > grace;
    return failed_s_ > grace && stands_still ? Verdict::kEnd : Verdict::kWell;
  }

 private:
  std::int64_t num_looks_ = -1;
  double without_look_s_ = 0;
  double failed_s_ = 0;
};

}  // namespace orthant
