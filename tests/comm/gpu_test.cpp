// Calls between processes with a GPU each, by mapped memory of peers and by NCCL: collectives
// against their definition, messages, and what is said when a rank stops.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <span>
#include <thread>
#include <type_traits>

#include "base/random.h"
#include "tests/comm/gpu_bed.h"

namespace orthant {
namespace {

constexpr int kRanks = 2;
// Around a line of 256, below and above what one kernel adds, and more than the buffers hold.
constexpr std::int64_t kCounts[] = {0, 1, 255, 257, 34003, 600000, 5000001};

class OnTwoGpus : public testing::TestWithParam<GpuLinks> {
 protected:
  void SetUp() override {
    if (num_gpus_here() < kRanks) {
      GTEST_SKIP() << "needs " << kRanks << " GPUs, " << num_gpus_here() << " are here";
    }
  }
  static void run(const std::function<void(GpuBed&)>& body, double deadline_s = 60) {
    run_gpu_ranks(kRanks, deadline_s, GetParam(), body);
  }
  // Twice, so that what the first has left behind would show.
  static std::string message_when(const std::function<void(GpuBed&)>& body) {
    std::string message = message_of([&] { run(body, 2); });
    run([](GpuBed& bed) {
      const Tensor t = bed.alloc(1000, DType::kF32);
      bed.put(t, std::vector<float>(1000, 1));
      bed.comm().all_reduce(t, Reduce::kSum);
      EXPECT_EQ(bed.get<float>(t).back(), kRanks);
    });
    return message;
  }
};
INSTANTIATE_TEST_SUITE_P(Gpu, OnTwoGpus,
                         testing::Values(GpuLinks::kPeers, GpuLinks::kNccl,
                                         GpuLinks::kNcclInRankOrder),
                         [](const auto& info) { return name_of(info.param); });

float value_at(int rank, std::int64_t i) {
  static const std::vector<float> kTable = [] {
    std::vector<float> table(4096);
    for (std::size_t at = 0; at < table.size(); ++at) {
      table[at] = static_cast<float>(normal(11, 0, at));
    }
    return table;
  }();
  return kTable[static_cast<std::size_t>(i + rank * 1237) % kTable.size()];
}

template <class T>
T element(int rank, std::int64_t i) {
  if constexpr (std::is_same_v<T, std::int64_t>) return static_cast<T>(1e6F * value_at(rank, i));
  return T(value_at(rank, i));
}

template <class T>
T sum_at(std::int64_t i) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>) {
    auto sum = static_cast<float>(element<T>(0, i));
    for (int rank = 1; rank < kRanks; ++rank) {
      sum += static_cast<float>(element<T>(rank, i));
    }
    return T(sum);
  } else {
    T sum = element<T>(0, i);
    for (int rank = 1; rank < kRanks; ++rank) {
      sum += element<T>(rank, i);
    }
    return sum;
  }
}

template <class T>
std::vector<T> values_of(int rank, std::int64_t count) {
  std::vector<T> values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(element<T>(rank, i));
  }
  return values;
}

template <class T, class Expected>
void expect_all(const std::vector<T>& found, const Expected& expected, const std::string& what) {
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const T want = expected(static_cast<std::int64_t>(i));
    const auto bytes_of = [](const T& value) {
      return std::as_bytes(std::span(&value, 1));
    };
    if (!std::ranges::equal(bytes_of(found[i]), bytes_of(want))) ++wrong;
  }
  EXPECT_EQ(wrong, 0) << what << ", " << found.size() << " elements";
}

template <class T>
void check_all_reduce(GpuBed& bed, DType type, std::int64_t count) {
  const Tensor t = bed.alloc(count, type);
  bed.put(t, values_of<T>(bed.comm().rank(), count));
  bed.comm().all_reduce(t, Reduce::kSum);
  expect_all(bed.get<T>(t), sum_at<T>, "all_reduce");
}

template <class T>
void check_reduce_scatter(GpuBed& bed, DType type, std::int64_t count) {
  const int rank = bed.comm().rank();
  const Tensor whole = bed.alloc(kRanks * count, type);
  const auto expected = [&](std::int64_t i) {
    return sum_at<T>(rank * count + i);
  };
  bed.put(whole, values_of<T>(rank, kRanks * count));
  const Tensor part = bed.alloc(count, type);
  bed.comm().reduce_scatter(part, whole);
  expect_all(bed.get<T>(part), expected, "reduce_scatter");
  bed.comm().reduce_scatter(whole.flat(rank * count, count), whole);
  expect_all(bed.get<T>(whole.flat(rank * count, count)), expected, "reduce_scatter in place");
}

template <class T>
void check_all_gather(GpuBed& bed, DType type, std::int64_t count) {
  const int rank = bed.comm().rank();
  const auto expected = [&](std::int64_t i) {
    return element<T>(static_cast<int>(i / count), i % count);
  };
  const Tensor whole = bed.alloc(kRanks * count, type);
  const Tensor part = bed.alloc(count, type);
  bed.put(part, values_of<T>(rank, count));
  bed.comm().all_gather(whole, part);
  expect_all(bed.get<T>(whole), expected, "all_gather");
  bed.put(whole, std::vector<T>(static_cast<std::size_t>(kRanks * count)));
  bed.put(whole.flat(rank * count, count), values_of<T>(rank, count));
  bed.comm().all_gather(whole, whole.flat(rank * count, count));
  expect_all(bed.get<T>(whole), expected, "all_gather in place");
}

template <class T>
void check_broadcast(GpuBed& bed, DType type, std::int64_t count) {
  for (int root = 0; root < kRanks; ++root) {
    const Tensor t = bed.alloc(count, type);
    bed.put(t, values_of<T>(bed.comm().rank(), count));
    bed.comm().broadcast(t, root);
    expect_all(
        bed.get<T>(t), [&](std::int64_t i) { return element<T>(root, i); }, "broadcast");
  }
}

template <class T>
void check_collectives(GpuBed& bed, DType type) {
  for (const std::int64_t count : kCounts) {
    for (const auto check :
         {check_all_reduce<T>, check_reduce_scatter<T>, check_all_gather<T>, check_broadcast<T>}) {
      const Frame frame(bed.arena());
      check(bed, type, count);
    }
  }
}

TEST_P(OnTwoGpus, CollectivesAreWhatTheyAreDefinedToBe) {
  run([](GpuBed& bed) {
    check_collectives<float>(bed, DType::kF32);
    check_collectives<BFloat16>(bed, DType::kBF16);
    check_collectives<Half>(bed, DType::kF16);
    check_collectives<double>(bed, DType::kF64);
    check_collectives<std::int64_t>(bed, DType::kI64);
  });
}

TEST_P(OnTwoGpus, MaximaAreTaken) {
  run([](GpuBed& bed) {
    const Tensor t = bed.alloc(34003, DType::kF32);
    bed.put(t, values_of<float>(bed.comm().rank(), t.count()));
    bed.comm().all_reduce(t, Reduce::kMax);
    const auto largest = [](std::int64_t i) {
      return std::max(value_at(0, i), value_at(1, i));
    };
    expect_all(bed.get<float>(t), largest, "maximum");
  });
}

// A blocking call between start and wait, and tensors that are written again at once.
TEST_P(OnTwoGpus, StartedCallsOverlap) {
  run([](GpuBed& bed) {
    constexpr std::int64_t kCount = 3000000;
    for (int round = 0; round < 20; ++round) {
      const Frame frame(bed.arena());
      const Tensor a = bed.alloc(kCount, DType::kF32);
      const Tensor b = bed.alloc(kCount, DType::kF32);
      const float mine = static_cast<float>(bed.comm().rank() + round);
      bed.put(a, std::vector<float>(kCount, mine));
      const Token first = bed.comm().start_all_reduce(a, Reduce::kSum);
      bed.put(b, std::vector<float>(kCount, 2 * mine));
      bed.comm().all_reduce(b, Reduce::kSum);
      bed.comm().wait(first);
      const float sum = static_cast<float>(1 + 2 * round);
      EXPECT_EQ(bed.get<float>(a), std::vector<float>(kCount, sum));
      EXPECT_EQ(bed.get<float>(b), std::vector<float>(kCount, 2 * sum));
    }
  });
}

// In both directions at once, each side sending before it receives, more than are waited for.
TEST_P(OnTwoGpus, MessagesArriveInTheOrderOfThePair) {
  run([](GpuBed& bed) {
    constexpr int kMessages = 40;
    const int peer = 1 - bed.comm().rank();
    std::vector<Tensor> in;
    std::vector<Token> tokens;
    for (int i = 0; i < kMessages; ++i) {
      const std::int64_t count = 1000 + 50000 * (i % 5);
      const Tensor out = bed.alloc(count, DType::kF32);
      bed.put(out, std::vector<float>(static_cast<std::size_t>(count),
                                      static_cast<float>(100 * bed.comm().rank() + i)));
      tokens.push_back(bed.comm().start_send(out, peer, i));
      in.push_back(bed.alloc(count, DType::kF32));
      tokens.push_back(bed.comm().start_recv(in.back(), peer, i));
    }
    for (const Token token : tokens) {
      bed.comm().wait(token);
    }
    for (int i = 0; i < kMessages; ++i) {
      const auto found = bed.get<float>(in[static_cast<std::size_t>(i)]);
      const float value = static_cast<float>(100 * peer + i);
      EXPECT_EQ(found, std::vector<float>(found.size(), value)) << "message " << i;
    }
  });
}

TEST_P(OnTwoGpus, GroupsOfOneWorldAreApart) {
  run([](GpuBed& bed) {
    const auto tp = bed.comm().subgroup("tp", {0, 1}, 1);
    const auto alone = bed.comm().subgroup("dp", {bed.comm().rank()}, 2);
    const auto acts = bed.comm().subgroup("pp_acts", {0, 1}, 3);
    for (Communicator* group : {tp.get(), alone.get(), acts.get()}) {
      group->reserve_scratch(256);
      group->connect();
      group->connect_ring();
    }
    const Tensor a = bed.alloc(100000, DType::kF32);
    const Tensor b = bed.alloc(100000, DType::kF32);
    bed.put(a, std::vector<float>(100000, 1));
    bed.put(b, std::vector<float>(100000, static_cast<float>(bed.comm().rank())));
    const Token sum = tp->start_all_reduce(a, Reduce::kSum);
    alone->all_reduce(b, Reduce::kSum);
    const bool is_sender = bed.comm().rank() == 0;
    acts->wait(is_sender ? acts->start_send(b, 1, 7) : acts->start_recv(b, 0, 7));
    tp->wait(sum);
    bed.comm().all_reduce(a, Reduce::kSum);
    EXPECT_EQ(bed.get<float>(a), std::vector<float>(100000, kRanks * kRanks));
    EXPECT_EQ(bed.get<float>(b), std::vector<float>(100000, 0));
  });
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

void reduce_once(GpuBed& bed, std::string_view where, std::int64_t count = 100000) {
  const Where scope(bed.ledger, where);
  const Tensor t = bed.alloc(count, DType::kF32);
  bed.comm().all_reduce(t, Reduce::kSum);
  bed.get<float>(t);
}

TEST_P(OnTwoGpus, ARankThatStopsIsNamed) {
  const std::string message = message_when([](GpuBed& bed) {
    reduce_once(bed, "a");
    if (bed.comm().rank() == 1) ::raise(SIGSTOP);
    reduce_once(bed, "b");
  });
  EXPECT_TRUE(contains(message, "rank 0 (world group 0,1) waited 2 s in all_reduce 'b'"))
      << message;
  EXPECT_TRUE(contains(message, "rank 1 has gone on from all_reduce 'a' (world)")) << message;
}

// It has posted the call, and the other, which comes later, waits on its GPU for the part that it
// has not queued.
TEST_P(OnTwoGpus, ARankThatStopsWhileAGpuWaitsForItIsNamed) {
  const std::string message = message_when([](GpuBed& bed) {
    reduce_once(bed, "a");
    const Where scope(bed.ledger, "b");
    const Tensor t = bed.alloc(100000, DType::kF32);
    if (bed.comm().rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    const Token token = bed.comm().start_all_reduce(t, Reduce::kSum);
    if (bed.comm().rank() == 1) ::raise(SIGSTOP);
    bed.comm().wait(token);
    bed.get<float>(t);
  });
  EXPECT_TRUE(contains(message, "rank 0 (world group 0,1) waited 2 s")) << message;
  EXPECT_TRUE(contains(message, "all_reduce 'b'")) << message;
  EXPECT_TRUE(contains(message, "rank 1 has gone on from all_reduce")) << message;
}

TEST_P(OnTwoGpus, ARankThatIsKilledIsNamed) {
  const std::string message = message_when([](GpuBed& bed) {
    reduce_once(bed, "a");
    if (bed.comm().rank() == 1) ::raise(SIGKILL);
    reduce_once(bed, "b");
  });
  EXPECT_EQ(message, "rank 1 was killed; rank 1 has gone on from all_reduce 'a' (world)");
}

TEST_P(OnTwoGpus, ARankThatThrowsStopsTheOthers) {
  const std::string message = message_when([](GpuBed& bed) {
    const Tensor t = bed.alloc(100000, DType::kF32);
    const Token token = bed.comm().start_all_reduce(t, Reduce::kSum);
    if (bed.comm().rank() == 1) fail_run("the disk is full");
    bed.comm().wait(token);
    bed.get<float>(t);
  });
  EXPECT_EQ(message, "rank 1 failed: the disk is full");
}

TEST_P(OnTwoGpus, DivergenceIsFoundBeforeAnythingIsQueued) {
  const std::string message = message_when([](GpuBed& bed) {
    reduce_once(bed, "a");
    reduce_once(bed, "b", 5 + bed.comm().rank());
  });
  EXPECT_TRUE(contains(message, "all_reduce 'b' (sum) of [5] f32")) << message;
  EXPECT_TRUE(contains(message, "all_reduce 'b' (sum) of [6] f32")) << message;
  EXPECT_TRUE(contains(message, "diverged")) << message;
}

TEST(OnOneGpu, TwoProcessesAreRefused) {
  if (num_gpus_here() < 1) GTEST_SKIP() << "no GPU is here";
  const std::string message = message_of([] {
    run_processes(2, 60, [](ProcessWorld& world) {
      const auto device = make_gpu_of_process(0);
      Ledger ledger;
      InFlight in_flight;
      world.join({.ledger = ledger, .in_flight = in_flight, .queue = device->queue()});
    });
  });
  EXPECT_TRUE(contains(message, "ranks 0 and 1 are processes on one GPU")) << message;
}

}  // namespace
}  // namespace orthant
