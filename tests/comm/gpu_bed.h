// GpuBed: a rank that is a process with a GPU of its own, and its memory there.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "mem/gpus.h"
#include "tests/comm/rank_bed.h"

namespace orthant {

enum class GpuLinks { kPeers, kNccl, kNcclInRankOrder };

inline std::string name_of(GpuLinks links) {
  switch (links) {
    case GpuLinks::kPeers: return "Peers";
    case GpuLinks::kNccl: return "Nccl";
    case GpuLinks::kNcclInRankOrder: return "NcclInRankOrder";
  }
  return "";
}

// Asked in a process of its own, since none may fork that has used a GPU.
inline int num_gpus_here() {
  static const int kCount = [] {
    std::fflush(nullptr);
    const pid_t pid = ::fork();
    if (pid == 0) std::_Exit(std::min(num_gpus(), 100));
    int raw = 0;
    ::waitpid(pid, &raw, 0);
    return WIFEXITED(raw) ? WEXITSTATUS(raw) : 0;
  }();
  return kCount;
}

class GpuBed {
 public:
  GpuBed(ProcessWorld& world, GpuLinks links)
      : device_(make_gpu_of_process(world.rank())),
        arena_(*device_, in_flight_, "test", std::int64_t{512} << 20),
        scratch_(*device_, in_flight_, "calls", kScratchBytes + kRoomOfSubgroups),
        comm_(world.join({.ledger = ledger,
                          .in_flight = in_flight_,
                          .queue = device_->queue(),
                          .scratch = &scratch_,
                          .rank_order = links == GpuLinks::kNcclInRankOrder,
                          .prefers_nccl = links != GpuLinks::kPeers})) {
    comm_->reserve_scratch(kScratchBytes);
    comm_->connect();
    comm_->connect_ring();
  }

  Communicator& comm() { return *comm_; }
  Arena& arena() { return arena_; }
  Tensor alloc(std::int64_t count, DType dtype) {
    return arena_.alloc({count}, dtype, MemClass::kWork);
  }
  template <class T>
  void put(const Tensor& to, const std::vector<T>& values) {
    device_->to_device(to, std::as_bytes(std::span(values)));
  }
  template <class T>
  std::vector<T> get(const Tensor& from) {
    std::vector<T> values(static_cast<std::size_t>(from.count()));
    device_->to_host(std::as_writable_bytes(std::span(values)), from);
    comm_->throw_if_failed();
    return values;
  }

  Ledger ledger;

 private:
  // Small, so that large sums are made in pieces.
  static constexpr std::int64_t kScratchBytes = std::int64_t{4} << 20;
  static constexpr std::int64_t kRoomOfSubgroups = std::int64_t{64} << 10;
  InFlight in_flight_;
  std::unique_ptr<Device> device_;
  Arena arena_;
  Arena scratch_;
  std::unique_ptr<Communicator> comm_;
};

inline void run_gpu_ranks(int size, double deadline_s, GpuLinks links,
                          const std::function<void(GpuBed&)>& body) {
  run_processes(size, deadline_s, [&](ProcessWorld& world) {
    ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    ::setenv("NCCL_RUNTIME_CONNECT", "0", 1);
    GpuBed bed(world, links);
    world.tell_others([&] {
      body(bed);
      world.close_links();
    });
  });
}

}  // namespace orthant
