// Wires of MPI messages, for ranks on several hosts.
#pragma once

#include <memory>

#include "comm/launch.h"
#include "comm/stream/wires.h"

namespace orthant {

// Starts MPI, and ends it when the wires go. A failure is said and aborts all ranks.
std::unique_ptr<Wires> make_mpi_wires(const Launch& launch);

}  // namespace orthant
