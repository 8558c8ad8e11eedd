// Transport: what connects ranks, and the host memory of a rank that its links take.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orthant {

enum class Transport : std::uint8_t {
  kThreads,       // pointers: no memory
  kSharedMemory,  // rings of bytes: of processes of one host
  kMpi,           // messages that are on their way
  kSockets,       // bytes that are on their way, and those that nobody has read
};
std::string_view name_of(Transport transport);  // "threads", "shm", "mpi", "sockets"
std::vector<std::string> transport_names();
Transport transport_of(std::string_view name);  // a user error for others

// The links of a group share memory of a fixed size: `share` links, those of one rank to all
// others.
std::int64_t ring_bytes(int share);     // of a ring, a power of two
std::int64_t message_bytes(int share);  // of one of MPI's four messages a link

// Ahead of a ring's bytes: two counters and the capacity, a cache line each.
inline constexpr std::int64_t kRingHeadBytes = 192;
inline constexpr std::int64_t kMostRingBytes = std::int64_t{256} << 10;

// Of a socket's link, its share of what the socket keeps included.
inline constexpr std::int64_t kSocketBytes = std::int64_t{512} << 10;

// Of one rank's end of a link: for rings the one that it writes, once all of its pages were used.
std::int64_t link_bytes(Transport transport, int share);

}  // namespace orthant
