#include "train/run_ranks.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/check.h"
#include "comm/backends.h"
#include "mem/gpus.h"
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

namespace {

// Mapped memory goes with memory that the processes of a host share; where their GPUs do not reach
// each other after all, NCCL is used, which nothing says before it is tried.
GpuLinks gpu_links_of(ProcessWorld* world) {
  if (world == nullptr || world->size() == 1) return GpuLinks::kNone;
  return world->transport() == Transport::kSharedMemory ? GpuLinks::kPeers : GpuLinks::kNccl;
}

}  // namespace

Libraries libraries_of(const RunConfig& config, ProcessWorld* world) {
  if (config.device.kind != "cuda") return {};
  return {.memory = assumed_library_memory(),
          .links = gpu_links_of(world),
          .ranks_per_host = world != nullptr ? world->num_local() : config.layout.ranks};
}

MemoryLimit memory_limit(const RunConfig& config, ProcessWorld* world) {
  std::vector<std::int64_t> devices;
  if (config.device.kind == "cuda" && world == nullptr) {
    devices = available_gpu_bytes();
  } else if (config.device.kind == "cuda") {
    const auto count = static_cast<std::size_t>(world->num_local());
    if (world->local_rank() < num_gpus()) use_gpu(world->local_rank());
    devices.assign(count, available_gpu_bytes(world->local_rank()));
  }
  Libraries libraries = libraries_of(config, world);
  libraries.has_context = true;  // asking has made it
  return {.devices = std::move(devices),
          .host_bytes = available_host_bytes(),
          .ranks_per_host = world != nullptr ? world->num_local() : config.layout.ranks,
          .libraries = libraries};
}

void run_ranks(const RankConfig& config, const RunPlan& plan, const std::string& ops,
               ProcessWorld* world, const std::function<void(Rank& rank, int r)>& body,
               Algorithms* algorithms) {
  Programs programs(schedule_choice(config.layout));
  using Join = std::function<std::unique_ptr<Communicator>(const CommParts&)>;
  const auto run_rank = [&](int r, int num_threads, const Join& join) {
    const bool has_own_gpu = world != nullptr && ops == "cuda";
    const std::unique_ptr<Device> device =
        has_own_gpu ? make_gpu_of_process(world->local_rank()) : make_device(ops, gpu_of(r));
    const Backend backend{.device = *device,
                          .ops = ops,
                          .join_world = join,
                          .num_threads = num_threads,
                          .programs = &programs,
                          .algorithms = algorithms};
    Rank rank(config, backend, plan.of(r).whole);
    if (world == nullptr) return body(rank, r);
    if (world->is_first() && !world->links().empty()) {
      fmt::print(stderr, "ranks: their GPUs are connected by {}\n", world->links());
    }
    world->tell_others([&] {
      body(rank, r);
      world->close_links();
    });
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
