#include "mem/numa.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace orthant {
namespace {

// "0-3,8-11"
std::vector<int> parse_list(const std::string& text) {
  std::vector<int> numbers;
  std::istringstream parts(text);
  std::string part;
  while (std::getline(parts, part, ',')) {
    std::istringstream ends(part);
    int first = 0;
    char dash = 0;
    if (!(ends >> first)) continue;
    int last = first;
    if (ends >> dash) ends >> last;
    for (int number = first; number <= last; ++number) {
      numbers.push_back(number);
    }
  }
  return numbers;
}

bool has_several_nodes(const std::string& root) {
  return std::filesystem::exists(root + "/sys/devices/system/node/node1");
}

}  // namespace

std::optional<NumaNode> numa_node_of(std::string pci_bus_id, const std::string& root) {
  std::transform(pci_bus_id.begin(), pci_bus_id.end(), pci_bus_id.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::ifstream of_device(root + "/sys/bus/pci/devices/" + pci_bus_id + "/numa_node");
  NumaNode node;
  if (!has_several_nodes(root) || !(of_device >> node.number) || node.number < 0) return {};
  std::ifstream of_node(root + "/sys/devices/system/node/node" + std::to_string(node.number) +
                        "/cpulist");
  std::string list;
  std::getline(of_node, list);
  node.processors = parse_list(list);
  if (node.processors.empty()) return {};  // memory without processors
  return node;
}

// Both are wishes: where the system refuses, memory and threads stay where it puts them.
void prefer_memory_of(const NumaNode& node, std::byte* data, std::int64_t bytes) {
  constexpr int kBits = 64;
  if (node.number >= kBits) return;
  const unsigned long mask = 1UL << node.number;
  static_cast<void>(::syscall(SYS_mbind, data, static_cast<unsigned long>(bytes), MPOL_PREFERRED,
                              &mask, kBits, 0));
}

void run_thread_on(const NumaNode& node) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int processor : node.processors) {
    if (processor < CPU_SETSIZE) CPU_SET(processor, &set);
  }
  static_cast<void>(::sched_setaffinity(0, sizeof set, &set));
}

}  // namespace orthant
