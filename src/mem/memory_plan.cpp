#include "mem/memory_plan.h"

#include <algorithm>

namespace orthant {
namespace {

ClassBytes sum_of_classes(const std::vector<ArenaPlan>& arenas, bool on_host) {
  ClassBytes sum{};
  for (const ArenaPlan& arena : arenas) {
    for (std::size_t i = 0; i < sum.size() && arena.on_host == on_host; ++i) {
      sum[i] += arena.by_class[i];
    }
  }
  return sum;
}

}  // namespace

std::int64_t MemoryPlan::device_bytes() const {
  std::int64_t bytes = 0;
  for (const ArenaPlan& arena : arenas) {
    if (!arena.on_host) bytes += arena.bytes;
  }
  return bytes;
}

std::int64_t MemoryPlan::host_bytes() const {
  std::int64_t bytes = 0;
  for (const ArenaPlan& arena : arenas) {
    if (arena.on_host) bytes += arena.bytes;
  }
  return bytes;
}

ClassBytes MemoryPlan::by_class() const {
  return sum_of_classes(arenas, false);
}

ClassBytes MemoryPlan::host_by_class() const {
  return sum_of_classes(arenas, true);
}

const ArenaPlan* MemoryPlan::find(const std::string& name) const {
  const auto found = std::find_if(arenas.begin(), arenas.end(),
                                  [&name](const ArenaPlan& a) { return a.name == name; });
  return found == arenas.end() ? nullptr : &*found;
}

void raise(MemoryPlan& whole, const MemoryPlan& phase) {
  if (whole.arenas.empty()) whole.arenas.resize(phase.arenas.size());
  for (std::size_t i = 0; i < phase.arenas.size(); ++i) {
    if (whole.arenas[i].name.empty() || phase.arenas[i].bytes > whole.arenas[i].bytes) {
      whole.arenas[i] = phase.arenas[i];
    }
  }
}

}  // namespace orthant
