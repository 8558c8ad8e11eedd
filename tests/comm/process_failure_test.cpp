// What ranks that are processes say when one fails, and what can befall only these.
#include "tests/comm/rank_bed.h"

namespace orthant {
namespace {

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

void reduce_once(RankBed& bed, std::string_view where) {
  const Where scope(bed.ledger, where);
  bed.comm->all_reduce(bed.alloc({5}, DType::kF32), Reduce::kSum);
}

class FailureOfProcesses : public testing::Test {
 protected:
  // What stops three ranks that sum 'a', then, but for rank 1, 'b'.
  static std::string message_when(const std::function<void(RankBed&)>& rank_one) {
    return message_of([&rank_one] {
      run_ranks(Transport::kSharedMemory, 3, 1, [&rank_one](RankBed& bed) {
        reduce_once(bed, "a");
        if (bed.comm->rank() == 1) {
          rank_one(bed);
        } else {
          reduce_once(bed, "b");
        }
      });
    });
  }
};

TEST_F(FailureOfProcesses, ARankThatSleepsIsNamed) {
  const std::string message = message_when([](RankBed&) { ::pause(); });
  EXPECT_TRUE(contains(message, "(world group 0,1,2) waited 1 s in all_reduce 'b'; ")) << message;
  EXPECT_TRUE(contains(message, "rank 1 has gone on from all_reduce 'a' (world)")) << message;
}

TEST_F(FailureOfProcesses, ARankThatIsStoppedIsNamed) {
  const std::string message = message_when([](RankBed&) { ::raise(SIGSTOP); });
  EXPECT_TRUE(contains(message, "waited 1 s in all_reduce 'b'; ")) << message;
  EXPECT_TRUE(contains(message, "rank 1 has gone on from all_reduce 'a' (world)")) << message;
}

TEST_F(FailureOfProcesses, ARankThatIsKilledIsNamed) {
  const std::string message = message_when([](RankBed&) { ::raise(SIGKILL); });
  EXPECT_EQ(message, "rank 1 was killed; rank 1 has gone on from all_reduce 'a' (world)");
}

TEST_F(FailureOfProcesses, ARankThatThrowsStopsTheOthers) {
  const std::string message = message_when([](RankBed&) { fail_run("the disk is full"); });
  EXPECT_EQ(message, "rank 1 failed: the disk is full");
}

TEST_F(FailureOfProcesses, ARankThatEndsIsNotWaitedFor) {
  const std::string message = message_when([](RankBed&) {});
  EXPECT_TRUE(contains(message,
                       "(world group 0,1,2) waits in all_reduce 'b', but rank 1 has ended "
                       "after all_reduce 'a' (world)"))
      << message;
}

TEST_F(FailureOfProcesses, ForgottenWaitsAreReported) {
  const std::string message = message_when([](RankBed& bed) {
    const Where where(bed.ledger, "b");
    (void)bed.comm->start_all_reduce(bed.alloc({5}, DType::kF32), Reduce::kSum);
  });
  EXPECT_EQ(
      message,
      "rank 1 failed: it stopped before its 1 started calls in group 'world' were waited for");
}

TEST_F(FailureOfProcesses, AnotherBranchIsFound) {
  const std::string shape = message_when([](RankBed& bed) {
    const Where where(bed.ledger, "b");
    bed.comm->all_reduce(bed.alloc({6}, DType::kF32), Reduce::kSum);
  });
  EXPECT_TRUE(contains(shape, "all_reduce 'b' (sum) of [5] f32")) << shape;
  EXPECT_TRUE(contains(shape, "all_reduce 'b' (sum) of [6] f32")) << shape;
  EXPECT_TRUE(contains(shape, "diverged")) << shape;
  const std::string place = message_when([](RankBed& bed) { reduce_once(bed, "c"); });
  EXPECT_TRUE(contains(place, "all_reduce 'b'") && contains(place, "all_reduce 'c'")) << place;
  const std::string kind = message_when([](RankBed& bed) { bed.comm->barrier(); });
  EXPECT_TRUE(contains(kind, "all_reduce 'b'") && contains(kind, "barrier")) << kind;
}

// What rank 0 of three says that are apart, while rank 1 does something else.
std::vector<int> statuses_apart(const std::function<void(RankBed&)>& rank_one,
                                std::string_view part) {
  return run_apart(3, 1, [&](int rank, ProcessWorld& world) {
    RankBed bed(world);
    reduce_once(bed, "a");
    if (rank == 1) return rank_one(bed);
    const std::string message = message_of([&] { reduce_once(bed, "b"); });
    EXPECT_TRUE(contains(message, part)) << message;
    fail_run("{}", message);
  });
}

TEST(FailureApart, ARankThatIsKilledIsNamed) {
  const std::vector<int> found =
      statuses_apart([](RankBed&) { ::raise(SIGKILL); },
                     "rank 1 was lost: its process has ended without a word; rank 1 ");
  EXPECT_EQ(found, (std::vector<int>{1, 128 + SIGKILL, 1}));
}

TEST(FailureApart, ARankThatThrowsStopsTheOthers) {
  const std::vector<int> found = statuses_apart([](RankBed&) { fail_run("the disk is full"); },
                                                "rank 1 failed: the disk is full");
  EXPECT_EQ(found, std::vector<int>(3, 1));
}

TEST(FailureApart, ARankThatSleepsIsNamed) {
  const std::vector<int> found = statuses_apart(
      [](RankBed&) {
        ::sleep(4);
        std::_Exit(1);
      },
      "waited 1 s in all_reduce 'b'; rank 1 ");
  EXPECT_EQ(found, std::vector<int>(3, 1));
}

TEST_F(FailureOfProcesses, AllRanksThrowWhatTheyHaveNotAgreedOn) {
  ShmWorld shared(3);
  std::vector<pid_t> pids;
  for (int rank = 0; rank < 3; ++rank) {
    pids.push_back(::fork());
    if (pids.back() != 0) continue;
    ProcessWorld world(
        make_shm_wires(std::make_unique<ShmWorld>(::dup(shared.fd()), 3), rank, nullptr), 60);
    const std::string message = message_of([&] {
      world.agree([&] {
        if (rank > 0) fail_user("rank file {} is missing", rank);
      });
    });
    std::_Exit(message == "rank 1: rank file 1 is missing" ? 0 : 1);
  }
  for (const pid_t pid : pids) {
    int raw = 0;
    ::waitpid(pid, &raw, 0);
    EXPECT_TRUE(WIFEXITED(raw) && WEXITSTATUS(raw) == 0);
  }
}

}  // namespace
}  // namespace orthant
