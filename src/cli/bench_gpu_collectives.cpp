// orthant bench collectives on GPUs: what processes with a GPU each move, by call and size, and
// what their links take of the memory.
#include <algorithm>
#include <memory>
#include <vector>

#include "base/text.h"
#include "cli/bench.h"
#include "comm/process_world.h"
#include "mem/arena.h"
#include "mem/gpus.h"

namespace orthant {
namespace {

constexpr std::int64_t kSizeStep = 4;

struct Kind {
  const char* name;
  void (*exchange)(Communicator& world, const Tensor& whole, const Tensor& other);
};

Tensor own_part(const Communicator& world, const Tensor& whole) {
  const std::int64_t count = whole.count() / world.size();
  return whole.flat(count * world.rank(), count);
}

// To the next rank and from the one before.
void send(Communicator& world, const Tensor& whole, const Tensor& other) {
  const int next = (world.rank() + 1) % world.size();
  const int previous = (world.rank() + world.size() - 1) % world.size();
  const Token sent = world.start_send(whole, next, 0);
  const Token received = world.start_recv(other, previous, 0);
  world.wait(received);
  world.wait(sent);
}

constexpr Kind kKinds[] = {{"all_reduce",
                            [](Communicator& world, const Tensor& whole, const Tensor& /*other*/) {
                              world.all_reduce(whole, Reduce::kSum);
                            }},
                           {"all_gather",
                            [](Communicator& world, const Tensor& whole, const Tensor& /*other*/) {
                              world.all_gather(whole, own_part(world, whole));
                            }},
                           {"reduce_scatter",
                            [](Communicator& world, const Tensor& whole, const Tensor& /*other*/) {
                              world.reduce_scatter(own_part(world, whole), whole);
                            }},
                           {"send", send}};

// Of one call: many are queued between two marks.
double seconds_of(const Kind& kind, Communicator& world, Device& device, const Tensor& whole,
                  const Tensor& other) {
  constexpr std::int64_t kBytes = std::int64_t{4} << 30;
  constexpr std::int64_t kMost = 200;
  constexpr std::int64_t kLeast = 5;
  const std::int64_t calls = std::clamp(kBytes / whole.bytes(), kLeast, kMost);
  const std::unique_ptr<QueueTimer> timer = device.timer();
  for (int i = 0; i < 3; ++i) {
    kind.exchange(world, whole, other);
  }
  const int start = timer->mark();
  for (std::int64_t i = 0; i < calls; ++i) {
    kind.exchange(world, whole, other);
  }
  return timer->seconds_between(start, timer->mark()) / static_cast<double>(calls);
}

}  // namespace

BenchResult bench_gpu_collectives(const CollectivesBench& bench, ProcessWorld& world) {
  const std::unique_ptr<Device> device = make_gpu_of_process(world.local_rank());
  Ledger ledger;
  InFlight in_flight;
  const std::int64_t bytes_each = (bench.max_bytes + Arena::kAlign) / Arena::kAlign * Arena::kAlign;
  constexpr std::int64_t kScratch = std::int64_t{128} << 20;
  Arena arena(*device, in_flight, "bench", 2 * bytes_each);
  Arena scratch(*device, in_flight, "calls", kScratch);
  const std::int64_t free_before = free_gpu_bytes(world.local_rank());
  BenchResult result;
  std::vector<std::vector<std::string>> table = {{"call", "bytes", "us", "GB/s"}};
  world.tell_others([&] {
    const std::unique_ptr<Communicator> group = world.join({.ledger = ledger,
                                                            .in_flight = in_flight,
                                                            .queue = device->queue(),
                                                            .scratch = &scratch,
                                                            .rank_order = false,
                                                            .prefers_nccl = bench.by_nccl});
    group->reserve_scratch(kScratch);
    group->connect();
    group->connect_ring();
    result.json = {
        {"ranks", world.size()}, {"links", world.links()}, {"calls", OrderedJson::array()}};
    constexpr std::int64_t kMinBytes = 4 << 10;
    for (const Kind& kind : kKinds) {
      for (std::int64_t bytes = kMinBytes; bytes <= bench.max_bytes; bytes *= kSizeStep) {
        const Frame frame(arena);
        ledger.restart();
        const Tensor whole = arena.alloc({bytes / 2}, DType::kBF16, MemClass::kCommunication);
        const Tensor other = arena.alloc({bytes / 2}, DType::kBF16, MemClass::kCommunication);
        const double seconds = seconds_of(kind, *group, *device, whole, other);
        const double gbps = static_cast<double>(bytes) * 1e-9 / seconds;
        result.json["calls"].push_back(
            {{"call", kind.name}, {"bytes", bytes}, {"us", seconds * 1e6}, {"gb_per_s", gbps}});
        table.push_back({kind.name, format_bytes(bytes), fmt::format("{:.1f}", seconds * 1e6),
                         fmt::format("{:.2f}", gbps)});
      }
    }
    const std::int64_t taken = free_before - free_gpu_bytes(world.local_rank());
    result.json["links_bytes"] = taken;
    result.text = fmt::format("{} processes with a GPU each, by {}, which takes {} of each; bf16\n",
                              world.size(), world.links(), format_bytes(taken)) +
                  format_table(table);
    world.close_links();
  });
  return result;
}

}  // namespace orthant
