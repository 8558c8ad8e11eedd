// The memory of links is what a plan says.
#include "comm/transport.h"

#include <sys/stat.h>

#include "tests/comm/rank_bed.h"

namespace orthant {
namespace {

// All ranks to all others, and messages both ways between neighbours, each more than a ring holds.
void fill_rings(RankBed& bed) {
  const Tensor t = bed.alloc({1 << 19}, DType::kF32);
  bed.comm->all_reduce(t, Reduce::kSum);
  const int first = bed.comm->rank() / 2 * 2;
  const auto pair = bed.comm->subgroup("pair", {first, first + 1}, 1);
  const int peer = 1 - pair->rank();
  const Token sent = pair->start_send(t.flat(0, 1 << 18), peer, 1);
  const Token received = pair->start_recv(t.flat(1 << 18, 1 << 18), peer, 1);
  pair->wait(sent);
  pair->wait(received);
}

TEST(Transport, RingsTakeThePagesThatArePlanned) {
  for (const int size : {2, 4, 8}) {
    ShmWorld world(size);
    std::fflush(nullptr);
    std::vector<pid_t> pids;
    for (int rank = 0; rank < size; ++rank) {
      pids.push_back(::fork());
      if (pids.back() != 0) continue;
      ::alarm(100);
      std::_Exit(run_process_rank(world.fd(), size, rank, 60, [](ProcessWorld& of_rank) {
        RankBed bed(of_rank);
        fill_rings(bed);
      }));
    }
    for (const pid_t pid : pids) {
      int status = 0;
      ::waitpid(pid, &status, 0);
      EXPECT_EQ(status, 0);
    }
    struct stat used = {};
    ASSERT_EQ(::fstat(world.fd(), &used), 0);
    const std::int64_t planned =
        size * ((size - 1) * link_bytes(Transport::kSharedMemory, size - 1) +
                link_bytes(Transport::kSharedMemory, 1));
    constexpr std::int64_t kBoard = 64 << 10;  // statuses and bells
    EXPECT_GE(used.st_blocks * 512, planned) << size;
    EXPECT_LE(used.st_blocks * 512, planned + kBoard) << size;
  }
}

TEST(Transport, ManyLinksShareWhatFewHave) {
  EXPECT_EQ(ring_bytes(1), kMostRingBytes);
  EXPECT_EQ(ring_bytes(7), 128 << 10);
  EXPECT_EQ(ring_bytes(1000), 4096);
  EXPECT_EQ(message_bytes(1), 128 << 10);
  EXPECT_EQ(message_bytes(1000), 4096);
  EXPECT_EQ(link_bytes(Transport::kThreads, 1), 0);
  EXPECT_EQ(link_bytes(Transport::kMpi, 1), 512 << 10);
}

TEST(Transport, NamesAreKnown) {
  for (const std::string& name : transport_names()) {
    EXPECT_EQ(name_of(transport_of(name)), name);
  }
  EXPECT_EQ(
      message_of([] { (void)transport_of("smh"); }),
      "transport 'smh' is not known; did you mean 'shm'? Known are threads, shm, mpi, sockets");
}

}  // namespace
}  // namespace orthant
