// NUMA: which memory and processors of this host lie next to a device, where the host has several
// nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace orthant {

struct NumaNode {
  int number = 0;
  std::vector<int> processors;
};

// Of the PCI device "0000:17:00.0"; nothing where the host has one node, or does not say. `root`
// stands before every path: for tests.
std::optional<NumaNode> numa_node_of(std::string pci_bus_id, const std::string& root = "");

// Pages of that memory that are not touched yet come from the node, as long as it has some.
void prefer_memory_of(const NumaNode& node, std::byte* data, std::int64_t bytes);
// The calling thread, and the threads that it makes, run there.
void run_thread_on(const NumaNode& node);

}  // namespace orthant
