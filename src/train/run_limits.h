// What the run file may ask for and this version does not do yet.
#pragma once

#include "train/run_config.h"

namespace orthant {

// Refuses it by name and says what to use.
void check_built(const RunConfig& config);

}  // namespace orthant
