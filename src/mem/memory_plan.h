// MemoryPlan: the high-water mark of every arena of one rank, by class. Dry run and real run make
// one each; they must be equal to the byte.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mem/arena.h"

namespace orthant {

struct ArenaPlan {
  std::string name;
  std::int64_t bytes = 0;
  ClassBytes by_class{};
  bool on_host = false;  // in memory of Device::host(), beside the device's
  friend bool operator==(const ArenaPlan&, const ArenaPlan&) = default;
};

struct MemoryPlan {
  std::vector<ArenaPlan> arenas;  // in the order in which a rank makes them

  std::int64_t device_bytes() const;
  std::int64_t host_bytes() const;
  ClassBytes by_class() const;       // of the device's
  ClassBytes host_by_class() const;  // of the host's
  const ArenaPlan* find(const std::string& name) const;
  friend bool operator==(const MemoryPlan&, const MemoryPlan&) = default;
};

// Raises each arena of `whole` to that of `phase` where that is higher.
void raise(MemoryPlan& whole, const MemoryPlan& phase);

}  // namespace orthant
