#include "plan/traffic.h"

#include <algorithm>
#include <map>

namespace orthant {

std::int64_t sent_bytes(const Instruction& call) {
  const std::int64_t n = call.group_size;
  if (call.what == "send" || call.what == "broadcast") return call.bytes;
  if (call.what == "recv" || n <= 1) return 0;
  const std::int64_t once = call.bytes * (n - 1) / n;
  return call.what == "all_reduce" ? 2 * once : once;
}

std::vector<Traffic> traffic_of(const World& world, int rank) {
  std::map<Lane, Traffic> lanes;
  for (const Instruction& call : world.of(rank).list) {
    if (!is_call(call)) continue;
    Traffic& traffic = lanes[call.lane];
    traffic.group_size = call.group_size;
    ++traffic.calls;
    traffic.bytes += call.bytes;
    traffic.sent += sent_bytes(call);
  }
  std::vector<Traffic> all;
  for (auto& [lane, traffic] : lanes) {
    const Seat& seat = world.groups.seat(rank, lane);
    traffic.group = world.groups.all[static_cast<std::size_t>(seat.group)].name;
    all.push_back(std::move(traffic));
  }
  return all;
}

std::vector<Traffic> busiest_traffic(const World& world) {
  std::vector<Traffic> busiest;
  std::vector<char> seen(world.kinds.size());
  for (std::size_t rank = 0; rank < world.kind_of.size(); ++rank) {
    char& is_known = seen[static_cast<std::size_t>(world.kind_of[rank])];
    if (is_known != 0) continue;
    is_known = 1;
    for (const Traffic& traffic : traffic_of(world, static_cast<int>(rank))) {
      const auto found = std::find_if(busiest.begin(), busiest.end(), [&traffic](const Traffic& t) {
        return t.group == traffic.group;
      });
      if (found == busiest.end()) {
        busiest.push_back(traffic);
      } else if (traffic.sent > found->sent) {
        *found = traffic;
      }
    }
  }
  return busiest;
}

}  // namespace orthant
