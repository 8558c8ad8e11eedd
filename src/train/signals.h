// Signals that ask a run to stop: taken between steps, so that a checkpoint can be saved first.
#pragma once

#include <csignal>

namespace orthant {

// While it lives, SIGINT and SIGTERM wait instead of ending the process. Make it before other
// threads start, which inherit that.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The signal that has arrived since the last call, or 0. Does not wait.
  int take() const;

 private:
  sigset_t asked_;
  sigset_t before_;
};

}  // namespace orthant
