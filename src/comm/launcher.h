// Launcher: starts this binary once for each rank, on this host, and watches the processes. When
// one is lost the others learn it from the board, and who does not stop is killed.
#pragma once

#include <string>
#include <vector>

namespace orthant {

// Runs `arguments` of this binary on `num_ranks` ranks. Returns the exit status: that of the first
// rank that failed by itself, else 4 when one was lost, else 128 + the signal that stopped them,
// else 0. Lines of other ranks than 0 begin with "[rank N] ".
int launch_ranks(int num_ranks, const std::vector<std::string>& arguments);

}  // namespace orthant
