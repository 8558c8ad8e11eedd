// What a host can give, from files as the kernel writes them.
#include "train/host_memory.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/check.h"

namespace orthant {
namespace {

// A file system of one host, gone at the end.
class Host {
 public:
  Host()
      : root_(std::filesystem::temp_directory_path() / fmt::format("orthant-host-{}", ::getpid())) {
    std::filesystem::remove_all(root_);
    put("/proc/meminfo", "MemTotal:  99 kB\nMemAvailable:   1000 kB\nBuffers: 3 kB\n");
  }
  ~Host() { std::filesystem::remove_all(root_); }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  void put(const std::string& path, const std::string& text) const {
    const std::filesystem::path file(root_.string() + path);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::int64_t available() const { return available_host_bytes(root_.string()); }

 private:
  std::filesystem::path root_;
};

TEST(HostMemory, IsWhatTheKernelCallsAvailable) {
  const Host host;
  EXPECT_EQ(host.available(), 1000 * 1024);
}

TEST(HostMemory, KeepsTheLimitOfItsGroup) {
  const Host host;
  host.put("/proc/self/cgroup", "0::/jobs/one\n");
  host.put("/sys/fs/cgroup/jobs/one/memory.max", "700000\n");
  host.put("/sys/fs/cgroup/jobs/one/memory.current", "300000\n");
  EXPECT_EQ(host.available(), 400000);
  host.put("/sys/fs/cgroup/jobs/one/memory.stat", "anon 5\ninactive_file 100000\n");
  EXPECT_EQ(host.available(), 500000);
  host.put("/sys/fs/cgroup/jobs/one/memory.max", "max\n");
  EXPECT_EQ(host.available(), 1000 * 1024);
}

TEST(HostMemory, KeepsTheLimitsOfGroupsAbove) {
  const Host host;
  host.put("/proc/self/cgroup", "0::/jobs/one\n");
  host.put("/sys/fs/cgroup/jobs/memory.max", "90000\n");
  host.put("/sys/fs/cgroup/jobs/memory.current", "20000\n");
  EXPECT_EQ(host.available(), 70000);
}

// In a container the group's path is that of the host and the files lie at the mount.
TEST(HostMemory, KeepsTheLimitOfTheMount) {
  const Host host;
  host.put("/proc/self/cgroup", "0::/../../not/here\n");
  host.put("/sys/fs/cgroup/memory.max", "90000\n");
  host.put("/sys/fs/cgroup/memory.current", "100000\n");
  EXPECT_EQ(host.available(), 0);
}

TEST(HostMemory, KeepsTheLimitOfTheFirstVersion) {
  const Host host;
  host.put("/proc/self/cgroup", "3:cpu,cpuacct:/a\n7:memory:/a/b\n");
  host.put("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "500000\n");
  host.put("/sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", "200000\n");
  host.put("/sys/fs/cgroup/memory/a/b/memory.stat", "cache 9\ntotal_inactive_file 50000\n");
  EXPECT_EQ(host.available(), 350000);
}

TEST(HostMemory, OfAnUnknownKernelIsAnError) {
  const Host host;
  host.put("/proc/meminfo", "MemTotal: 99 kB\n");
  EXPECT_THROW(host.available(), Error);
}

}  // namespace
}  // namespace orthant
