#include "comm/host.h"

#include <algorithm>
#include <array>
#include <fstream>

#include <unistd.h>

#include "base/check.h"

namespace orthant {

std::string host_of(const Environment& environment) {
  constexpr std::size_t kMost = 100;  // what ranks tell each other has room for
  const auto named = environment.find("NCCL_HOSTID");
  if (named != environment.end() && !named->second.empty()) {
    if (named->second.size() <= kMost) return named->second;
    fail_user("NCCL_HOSTID has {} characters, more than {}: shorten it, or unset it",
              named->second.size(), kMost);
  }
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id") >> std::ws, boot);
  return boot;
}

std::string process_space_of(const Environment& environment) {
  std::array<char, 64> space{};
  const ssize_t count = ::readlink("/proc/self/ns/pid", space.data(), space.size() - 1);
  return std::string(space.data(), static_cast<std::size_t>(std::max<ssize_t>(0, count))) + " " +
         host_of(environment);
}

}  // namespace orthant
