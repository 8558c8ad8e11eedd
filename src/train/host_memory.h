// The memory that this host can still give: free, and within the limits of its control groups.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace orthant {

// Bytes that a new process can take: MemAvailable of /proc/meminfo, or less where a control group
// (v1 or v2) of this process or one above it leaves less. `root` stands before every path: for
// tests.
std::int64_t available_host_bytes(const std::string& root = "");

// The same of one GPU, which has a context from here on. Throws a user error where it is not.
std::int64_t available_gpu_bytes(int index);
std::vector<std::int64_t> available_gpu_bytes();  // of every GPU

}  // namespace orthant
