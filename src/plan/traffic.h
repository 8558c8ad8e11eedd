// Traffic: what a rank sends and receives in a step, by group.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/timeline.h"

namespace orthant {

struct Traffic {
  std::string group;  // "tp"
  int group_size = 0;
  std::int64_t calls = 0;  // of one rank in a step
  std::int64_t bytes = 0;  // of their tensors
  std::int64_t sent = 0;   // what a ring sends for them
};

// Bytes that one rank sends for a call when its group is a ring.
std::int64_t sent_bytes(const Instruction& call);

// Of one rank, in the order of its communicators.
std::vector<Traffic> traffic_of(const World& world, int rank);

// For each group the busiest rank that is the first of its kind.
std::vector<Traffic> busiest_traffic(const World& world);

}  // namespace orthant
