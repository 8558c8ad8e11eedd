// The learning rate as a pure function of the step, so that a resumed run needs no saved state.
#pragma once

#include <cstdint>
#include <string>

namespace orthant {

struct LrConfig {
  double lr = 3e-4;
  double min_lr = 0;
  std::int64_t warmup_steps = 0;
  std::int64_t steps = 1;        // the last step, where the decay reaches min_lr
  std::int64_t decay_steps = 0;  // wsd only: the length of the decay; 0: a tenth of the steps
  std::string decay = "cosine";  // cosine, linear, constant, wsd
};

// Throws a user error that names the option. Warm-up may be longer than the run.
void check_lr(const LrConfig& config);

// The rate of `step`, counted from 1: lr * step / warmup_steps while warming up, then the decay;
// after the last step its value.
double lr_at(const LrConfig& config, std::int64_t step);

}  // namespace orthant
