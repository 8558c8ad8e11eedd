#include "train/rank_threads.h"

#include <algorithm>
#include <thread>

#include "comm/backends.h"

namespace orthant {

int threads_per_rank(int ranks) {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / ranks);
}

void run_ranks(const RankConfig& config, const RunPlan& plan, const std::string& ops,
               const std::function<void(Rank& rank, int r)>& body) {
  ThreadWorld world(config.layout.ranks, config.layout.deadline_s);
  run_rank_threads(world, [&](int r) {
    const std::unique_ptr<Device> device = make_host_device();
    const Backend backend{
        .device = *device,
        .ops = ops,
        .join_world = [&](const CommParts& parts) { return world.join(r, parts); },
        .num_threads = threads_per_rank(config.layout.ranks)};
    Rank rank(config, backend, plan.of(r).memory);
    body(rank, r);
  });
}

}  // namespace orthant
