// Host: on which host a process is, in words that all of its processes say.
#pragma once

#include <string>

#include "comm/launch.h"

namespace orthant {

// NCCL_HOSTID where that is set, since NCCL tells hosts apart by it, else the boot of the kernel.
std::string host_of(const Environment& environment);

// Of a host, who can open each other's files: containers of one host cannot.
std::string process_space_of(const Environment& environment);

}  // namespace orthant
