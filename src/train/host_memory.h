// The memory that this host can still give: free, and within the limits of its control groups.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace orthant {

// Bytes that a new process can take: MemAvailable of /proc/meminfo, or less where a control group
// (v1 or v2) of this process or one above it leaves less. `root` stands before every path: for
// tests.
std::int64_t available_host_bytes(const std::string& root = "");

// The same of the devices of a kind: "cuda" is all GPUs. Throws a user error where none is.
std::int64_t available_bytes(std::string_view kind);

}  // namespace orthant
