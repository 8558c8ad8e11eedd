#include "train/run_ranks.h"

#include <algorithm>
#include <thread>

#include "base/check.h"
#include "comm/backends.h"
#include "train/host_memory.h"
#include "train/run_schedule.h"

namespace orthant {

int threads_per_rank(int ranks) {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / ranks);
}

void agree(ProcessWorld* world, const std::function<void()>& act) {
  if (world == nullptr) {
    act();
  } else {
    world->agree(act);
  }
}

MemoryLimit memory_limit(const RunConfig& config, ProcessWorld* world) {
  if (world != nullptr && world->size() > 1 && config.device.kind == "cuda") {
    fail_user(
        "device.kind='cuda' with {} ranks as processes is not built into this version; run them as "
        "threads of one process, which take the GPUs of this host in turn",
        world->size());
  }
  const bool is_cuda = config.device.kind == "cuda";
  return {.devices = is_cuda ? available_gpu_bytes() : std::vector<std::int64_t>(),
          .host_bytes = available_host_bytes(),
          .ranks_per_host = world != nullptr ? world->num_local() : config.layout.ranks};
}

void run_ranks(const RankConfig& config, const RunPlan& plan, const std::string& ops,
               ProcessWorld* world, const std::function<void(Rank& rank, int r)>& body) {
  Programs programs(schedule_choice(config.layout));
  using Join = std::function<std::unique_ptr<Communicator>(const CommParts&)>;
  const auto run_rank = [&](int r, int num_threads, const Join& join) {
    const std::unique_ptr<Device> device = make_device(ops, gpu_of(r));
    const Backend backend{.device = *device,
                          .ops = ops,
                          .join_world = join,
                          .num_threads = num_threads,
                          .programs = &programs};
    Rank rank(config, backend, plan.of(r).whole);
    body(rank, r);
  };
  if (world != nullptr) {
    world->run([&] {
      run_rank(world->rank(), world->num_threads(),
               [&](const CommParts& parts) { return world->join(parts); });
    });
    return;
  }
  ThreadWorld threads(config.layout.ranks, config.layout.deadline_s);
  run_rank_threads(threads, [&](int r) {
    run_rank(r, threads_per_rank(config.layout.ranks),
             [&](const CommParts& parts) { return threads.join(r, parts); });
  });
}

}  // namespace orthant
