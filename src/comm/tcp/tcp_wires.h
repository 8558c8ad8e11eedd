// Wires of sockets: one between every two ranks, which may be on several hosts.
#pragma once

#include <memory>
#include <vector>

#include "comm/stream/wires.h"
#include "comm/tcp/socket.h"

namespace orthant {

// `sockets` by rank; this rank's own is not open. `num_local`: ranks on this host.
std::unique_ptr<Wires> make_tcp_wires(std::vector<Socket> sockets, int rank, int num_local);

}  // namespace orthant
