#include "comm/transport.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/check.h"
#include "base/text.h"
#include "comm/stream/wires.h"

namespace orthant {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"threads", "shm", "mpi", "sockets"};

}  // namespace

std::string_view name_of(Transport transport) {
  return kNames.at(static_cast<std::size_t>(transport));
}

std::vector<std::string> transport_names() {
  return {kNames.begin(), kNames.end()};
}

Transport transport_of(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) {
    fail_user("transport '{}' is not known; did you mean '{}'? Known are {}", name,
              nearest(std::string(name), transport_names()), join(transport_names()));
  }
  return static_cast<Transport>(found - kNames.begin());
}

std::int64_t ring_bytes(int share) {
  constexpr std::int64_t kShared = std::int64_t{1} << 20;
  constexpr std::int64_t kLeast = 4096;
  const auto bytes = static_cast<std::int64_t>(
      std::bit_floor(static_cast<std::uint64_t>(kShared / std::max(1, share))));
  return std::clamp(bytes, kLeast, kMostRingBytes);
}

std::int64_t message_bytes(int share) {
  constexpr std::int64_t kShared = std::int64_t{1} << 19;
  constexpr std::int64_t kLeast = 4096;
  constexpr std::int64_t kMost = std::int64_t{128} << 10;
  constexpr auto kGrain = static_cast<std::int64_t>(Wires::kGrain);
  return std::clamp(kShared / std::max(1, share), kLeast, kMost) / kGrain * kGrain;
}

std::int64_t link_bytes(Transport transport, int share) {
  constexpr std::int64_t kPage = 4096;
  switch (transport) {
    case Transport::kThreads: return 0;
    case Transport::kSharedMemory:
      return (kRingHeadBytes + ring_bytes(share) + kPage - 1) / kPage * kPage;
    case Transport::kMpi: return 4 * message_bytes(share);
    case Transport::kSockets: return kSocketBytes;
  }
  return 0;
}

}  // namespace orthant
