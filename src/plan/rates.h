// Rates: how long ops, calls and copies take on a machine.
#pragma once

#include "plan/machine.h"
#include "plan/timeline.h"

namespace orthant {

// By the machine's measured rates. An op takes the longer of its arithmetic and its memory; a call
// what a ring takes, over the network where its group lies on several hosts.
Durations durations_on(const Machine& machine, const ProgramTables& tables);

// Stages' times in proportion to their FLOPs, and messages that take none.
Durations flop_durations(const ProgramTables& tables);

// Members that share a host, at most.
int most_on_one_host(const Group& group, int devices_per_host);

}  // namespace orthant
