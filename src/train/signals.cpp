#include "train/signals.h"

#include <ctime>

namespace orthant {

StopSignals::StopSignals() : asked_(), before_() {
  sigemptyset(&asked_);
  sigaddset(&asked_, SIGINT);
  sigaddset(&asked_, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &asked_, &before_);
}

StopSignals::~StopSignals() {
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

int StopSignals::take() const {
  const timespec no_time = {};
  const int signal = sigtimedwait(&asked_, nullptr, &no_time);
  return signal > 0 ? signal : 0;
}

}  // namespace orthant
