#include "train/host_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "mem/gpus.h"

namespace orthant {
namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

// A file that is one number; nothing where it is absent or a word, as "max".
std::optional<std::int64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  if (!(file >> number)) return std::nullopt;
  return number;
}

// The number behind `key` in a file of lines "key number ...".
std::optional<std::int64_t> find_number(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name;
    std::int64_t number = 0;
    if (words >> name >> number && name == key) return number;
  }
  return std::nullopt;
}

// Names of one version's files.
struct Controller {
  const char* mount;
  const char* limit;
  const char* usage;
  const char* cache;  // in memory.stat: file pages that are given up when memory is short
};
constexpr Controller kV2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};
constexpr Controller kV1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                            "memory.usage_in_bytes", "total_inactive_file"};

std::int64_t left_in(const std::string& folder, const Controller& names) {
  const auto limit = read_number(folder + "/" + names.limit);
  const auto usage = read_number(folder + "/" + names.usage);
  if (!limit || !usage) return kUnlimited;
  const std::int64_t cache = find_number(folder + "/memory.stat", names.cache).value_or(0);
  return std::max<std::int64_t>(0, *limit - std::max<std::int64_t>(0, *usage - cache));
}

// The least of a group and all above it.
std::int64_t left_on_path(const std::string& root, std::string group, const Controller& names) {
  const std::string mount = root + names.mount;
  std::int64_t left = left_in(mount, names);
  while (!group.empty() && group != "/") {
    left = std::min(left, left_in(std::string(mount).append(group), names));
    group.resize(group.find_last_of('/'));
  }
  return left;
}

// Lines of /proc/self/cgroup: "0::/path" of v2, "7:memory:/path" of v1.
std::int64_t left_in_groups(const std::string& root) {
  std::int64_t left = kUnlimited;
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string path = line.substr(second + 1);
    const std::vector<std::string> controllers =
        split(line.substr(first + 1, second - first - 1), ',');
    const bool is_v2 = second == first + 1;
    const bool is_v1 =
        std::find(controllers.begin(), controllers.end(), "memory") != controllers.end();
    if (is_v2) left = std::min(left, left_on_path(root, path, kV2));
    if (is_v1) left = std::min(left, left_on_path(root, path, kV1));
  }
  return left;
}

}  // namespace

std::int64_t available_host_bytes(const std::string& root) {
  const auto kib = find_number(root + "/proc/meminfo", "MemAvailable:");
  if (!kib) {
    fail_run("{}/proc/meminfo does not say MemAvailable; the memory of this host is not known",
             root);
  }
  return std::min(*kib * 1024, left_in_groups(root));
}

std::int64_t available_gpu_bytes(int index) {
  const int count = num_gpus();
  if (count == 0) {
    fail_user(
        "device.kind='cuda' needs an NVIDIA GPU with its driver and a build with CUDA; none is "
        "found here, use 'cpu'");
  }
  if (index >= count) {
    fail_user(
        "device.kind='cuda': GPU {} is asked for, {} are here; start at most as many processes on "
        "a host as it has GPUs",
        index, count);
  }
  return free_gpu_bytes(index);
}

std::vector<std::int64_t> available_gpu_bytes() {
  std::vector<std::int64_t> bytes = {available_gpu_bytes(0)};
  for (int gpu = 1; gpu < num_gpus(); ++gpu) {
    bytes.push_back(available_gpu_bytes(gpu));
  }
  return bytes;
}

}  // namespace orthant
