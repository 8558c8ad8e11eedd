// orthant bench libraries: what driver and NCCL take of a GPU for each thing that connects ranks,
// by the driver's count before and after it is made.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "cli/bench.h"
#include "comm/process_world.h"
#include "mem/arena.h"
#include "mem/gpus.h"

namespace orthant {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kArenaBytes = 1024 * kMiB;  // others map it whole
constexpr std::int64_t kScratchBytes = 4 * kMiB;   // of each group

// A rank's GPU, and what was taken of it since the last look.
class Bed {
 public:
  explicit Bed(ProcessWorld& world)
      : world_(world),
        device_(make_gpu_of_process(world.local_rank())),
        arena_(*device_, in_flight_, "bench", kArenaBytes),
        scratch_(*device_, in_flight_, "calls", 4 * kScratchBytes),
        begin_(scratch_.mark()),
        values_(arena_.alloc({kArenaBytes / 4}, DType::kF32, MemClass::kCommunication)) {}

  std::unique_ptr<Communicator> join(bool by_nccl) {
    scratch_.rewind(begin_);
    auto comm = world_.join({.ledger = ledger_,
                             .in_flight = in_flight_,
                             .queue = device_->queue(),
                             .scratch = &scratch_,
                             .rank_order = true,
                             .prefers_nccl = by_nccl});
    settle();
    free_ = free_gpu_bytes(world_.local_rank());
    return comm;
  }
  // In MiB, rounded up; all ranks have come here, and their GPUs are idle.
  std::int64_t taken_mib(Communicator& comm) {
    settle();
    comm.barrier();
    const std::int64_t before = std::exchange(free_, free_gpu_bytes(world_.local_rank()));
    return (std::max<std::int64_t>(0, before - free_) + kMiB - 1) / kMiB;
  }
  const Tensor& values() const { return values_; }
  ProcessWorld& world() { return world_; }

 private:
  void settle() {
    float first = 0;
    device_->to_host(std::as_writable_bytes(std::span(&first, 1)), values_.flat(0, 1));
  }

  ProcessWorld& world_;
  Ledger ledger_;
  InFlight in_flight_;
  std::unique_ptr<Device> device_;
  Arena arena_;
  Arena scratch_;
  Arena::Mark begin_;
  Tensor values_;
  std::int64_t free_ = 0;
};

std::int64_t share(std::int64_t mib, std::int64_t count) {
  return (mib + count - 1) / count;
}

void add_peers(Bed& bed, OrderedJson& found) {
  const auto comm = bed.join(false);
  comm->reserve_scratch(kScratchBytes);
  comm->connect();
  comm->all_reduce(bed.values(), Reduce::kSum);
  const std::int64_t mib = bed.taken_mib(*comm);
  found["links"] = bed.world().links();
  const bool is_by_nccl = bed.world().links().starts_with("NCCL");
  if (!is_by_nccl) found["peer_mib"] = share(mib, bed.world().size() - 1);
  bed.world().close_links();
}

// One thing after another, each made as a training makes it.
void add_nccl(Bed& bed, OrderedJson& found) {
  const auto first = bed.join(true);
  const int others = first->size() - 1;
  const auto connect = [&](Communicator& group) {
    group.reserve_scratch(kScratchBytes);
    group.connect();
    return bed.taken_mib(*first);
  };
  const std::int64_t with_library = connect(*first);
  const auto again = first->subgroup("again", first->members(), 1);
  const std::int64_t group = connect(*again);
  const auto small = first->subgroup("few_values", first->members(), 2);
  small->expect_few_values();
  const std::int64_t few = connect(*small);
  const auto ring = first->subgroup("messages", first->members(), 3);
  ring->reserve_scratch(1);
  ring->connect_ring();
  const std::int64_t messages = bed.taken_mib(*first);
  again->all_reduce(bed.values(), Reduce::kSum);  // in rank order: from all to all
  const std::int64_t direct = bed.taken_mib(*first);
  constexpr int kDirections = 2;
  found["nccl"] = bed.world().links();
  // Where GPUs do not reach each other, NCCL was there before.
  const bool is_first_nccl = found.contains("peer_mib");
  if (is_first_nccl) found["nccl_mib"] = std::max<std::int64_t>(0, with_library - group);
  found["nccl_group_mib"] = group;
  found["nccl_small_mib"] = std::max(few, share(messages, kDirections * std::min(others, 2)));
  found["nccl_peer_mib"] = share(direct, others);
  bed.world().close_links();
}

std::string text_of(const OrderedJson& found) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& [key, value] : found.items()) {
    rows.push_back({key, value.is_string() ? value.get<std::string>() : value.dump()});
  }
  return format_table(rows);
}

}  // namespace

BenchResult bench_libraries(ProcessWorld& world) {
  Bed bed(world);
  BenchResult result;
  result.json["ranks"] = world.size();
  world.tell_others([&] {
    add_peers(bed, result.json);
    // Without NCCL all ranks find so, each by itself.
    try {
      add_nccl(bed, result.json);
    } catch (const Error& error) {
      if (error.fault() != Fault::kUser) throw;
      result.json["nccl"] = fmt::format("not measured: {}", error.what());
    }
  });
  result.text = text_of(result.json);
  return result;
}

}  // namespace orthant
