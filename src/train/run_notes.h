// What a run file asks for and its other options leave without any effect. Such a run is legal, and
// seldom what was meant.
#pragma once

#include <string>
#include <vector>

#include "train/run_config.h"

namespace orthant {

// One sentence for each such option; `config` is valid.
std::vector<std::string> notes_on(const RunConfig& config);

}  // namespace orthant
