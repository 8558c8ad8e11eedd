// orthant bench collectives: what thread ranks move, by call and size. GB/s counts the bytes of the
// whole tensor once, or of one message a rank.
#include <algorithm>
#include <atomic>

#include "base/check.h"
#include "base/text.h"
#include "cli/bench.h"
#include "comm/backends.h"
#include "mem/arena.h"

namespace orthant {
namespace {

constexpr std::int64_t kMinBytes = 4 << 10;
constexpr std::int64_t kSizeStep = 4;
constexpr double kDeadlineS = 60;

Tensor own_part(Communicator& world, const Tensor& whole) {
  const std::int64_t count = whole.count() / world.size();
  return whole.flat(count * world.rank(), count);
}

void all_reduce(Communicator& world, const Tensor& whole) {
  world.all_reduce(whole, Reduce::kSum);
}

void all_gather(Communicator& world, const Tensor& whole) {
  world.all_gather(whole, own_part(world, whole));
}

void reduce_scatter(Communicator& world, const Tensor& whole) {
  world.reduce_scatter(own_part(world, whole), whole);
}

// Each rank sends the first half of its memory to the next and receives into the second.
void send(Communicator& world, const Tensor& whole) {
  const std::int64_t half = whole.count() / 2;
  const int next = (world.rank() + 1) % world.size();
  const int previous = (world.rank() + world.size() - 1) % world.size();
  const Token sent = world.start_send(whole.flat(0, half), next, 0);
  const Token received = world.start_recv(whole.flat(half, half), previous, 0);
  world.wait(received);
  world.wait(sent);
}

struct Kind {
  const char* name;
  void (*exchange)(Communicator& world, const Tensor& whole);
  int copies;  // of the bytes that count in the memory of a rank
};
constexpr Kind kKinds[] = {{"all_reduce", all_reduce, 1},
                           {"all_gather", all_gather, 1},
                           {"reduce_scatter", reduce_scatter, 1},
                           {"send", send, 2}};

// Best time of a round, in which all ranks begin and end together.
double best_seconds(const CollectivesBench& bench, const Kind& kind, std::int64_t bytes) {
  ThreadWorld threads(bench.num_ranks, kDeadlineS);
  double best = 1e30;
  std::atomic<bool> done = false;  // rank 0 says so before the barrier that ends a round
  run_rank_threads(threads, [&](int r) {
    Ledger ledger;
    InFlight in_flight;
    const std::unique_ptr<Device> device = make_host_device();
    const std::int64_t unit = bench.num_ranks;
    const std::int64_t count = (bytes / 4 + unit - 1) / unit * unit * kind.copies;
    Arena arena(*device, in_flight, "bench", count * 4 + Arena::kAlign);
    const Tensor whole = arena.alloc({count}, DType::kF32, MemClass::kCommunication);
    const std::unique_ptr<Communicator> world =
        threads.join(r, {.ledger = ledger, .in_flight = in_flight});
    const double first = seconds_now(bench.num_ranks);
    while (!done) {
      ledger.restart();
      world->barrier();
      const double start = seconds_now(bench.num_ranks);
      kind.exchange(*world, whole);
      if (r == 0 && seconds_now(bench.num_ranks) - first > bench.seconds) done = true;
      world->barrier();
      if (r == 0) best = std::min(best, seconds_now(bench.num_ranks) - start);
    }
  });
  return best;
}

}  // namespace

BenchResult bench_collectives(const CollectivesBench& bench) {
  BenchResult result;
  result.json = {{"ranks", bench.num_ranks}, {"calls", OrderedJson::array()}};
  std::vector<std::vector<std::string>> table = {{"call", "bytes", "us", "GB/s"}};
  for (const Kind& kind : kKinds) {
    for (std::int64_t bytes = kMinBytes; bytes <= bench.max_bytes; bytes *= kSizeStep) {
      const double seconds = best_seconds(bench, kind, bytes);
      const double gbps = static_cast<double>(bytes) * 1e-9 / seconds;
      result.json["calls"].push_back(
          {{"call", kind.name}, {"bytes", bytes}, {"us", seconds * 1e6}, {"gb_per_s", gbps}});
      table.push_back({kind.name, format_bytes(bytes), fmt::format("{:.1f}", seconds * 1e6),
                       fmt::format("{:.2f}", gbps)});
    }
  }
  result.text =
      fmt::format("{} thread ranks, best rounds\n", bench.num_ranks) + format_table(table);
  return result;
}

}  // namespace orthant
