// Which node of a host a device is on, read from files as the kernel writes them.
#include "mem/numa.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

namespace orthant {
namespace {

class Numa : public testing::Test {
 public:
  Numa() = default;
  Numa(const Numa&) = delete;
  Numa& operator=(const Numa&) = delete;

 protected:
  ~Numa() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path whole = root_ + path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text << "\n";
  }
  std::string root_ = testing::TempDir() + "numa-" + std::to_string(::getpid());
};

TEST_F(Numa, TheNodeOfADeviceHasItsProcessors) {
  write("/sys/devices/system/node/node0/cpulist", "0-3");
  write("/sys/devices/system/node/node1/cpulist", "4-5,8,10-11");
  write("/sys/bus/pci/devices/0000:1b:00.0/numa_node", "1");
  const auto node = numa_node_of("0000:1B:00.0", root_);
  ASSERT_TRUE(node.has_value());
  EXPECT_EQ(node->number, 1);
  EXPECT_EQ(node->processors, (std::vector<int>{4, 5, 8, 10, 11}));
}

TEST_F(Numa, NothingIsKnownOfOneNodeOrOfADeviceWithoutOne) {
  write("/sys/devices/system/node/node0/cpulist", "0-3");
  write("/sys/bus/pci/devices/0000:1b:00.0/numa_node", "0");
  EXPECT_FALSE(numa_node_of("0000:1b:00.0", root_).has_value());
  write("/sys/devices/system/node/node1/cpulist", "4-7");
  EXPECT_TRUE(numa_node_of("0000:1b:00.0", root_).has_value());
  write("/sys/bus/pci/devices/0000:1b:00.0/numa_node", "-1");
  EXPECT_FALSE(numa_node_of("0000:1b:00.0", root_).has_value());
  EXPECT_FALSE(numa_node_of("0000:99:00.0", root_).has_value());
}

TEST_F(Numa, MemoryMayBePreferredOfTheOneNode) {
  std::vector<std::byte> memory(1 << 20);
  prefer_memory_of({.number = 0, .processors = {0}}, memory.data(), 1 << 20);
  EXPECT_EQ(memory[5], std::byte{0});
}

}  // namespace
}  // namespace orthant
