// Meeting: ranks that a launcher has started without connecting them come to a port of rank 0. When
// all are on one host, they go on with memory that they share, else with a socket between every
// two.
#pragma once

#include <memory>

#include "comm/launch.h"
#include "comm/stream/wires.h"

namespace orthant {

// Throws on every rank when one is missing after `deadline_s`, has come twice, speaks of another
// size.
std::unique_ptr<Wires> meet(const Launch& launch, double deadline_s);

}  // namespace orthant
