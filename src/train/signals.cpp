#include "train/signals.h"

#include <ctime>
#include <initializer_list>

namespace orthant {

StopSignals::StopSignals() : asked_(), before_() {
  sigemptyset(&asked_);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) {
    struct sigaction action = {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&asked_, signal);  // nohup ignores SIGHUP
  }
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
