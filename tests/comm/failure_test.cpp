// What ranks say when one fails, hangs, ends early or calls something else.
#include <atomic>
#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "tests/comm/rank_bed.h"

namespace orthant {
namespace {

using namespace std::chrono_literals;

struct Caught {
  Fault fault = Fault::kRun;
  std::string message;
};

Caught caught_from(int size, double deadline_s, const std::function<void(RankBed&)>& body) {
  try {
    run_ranks(size, deadline_s, body);
  } catch (const Error& error) {
    return {.fault = error.fault(), .message = error.what()};
  }
  return {};
}

void reduce_once(RankBed& bed, Communicator& comm, std::string_view where) {
  const Where scope(bed.ledger, where);
  comm.all_reduce(bed.alloc({5}, DType::kF32), Reduce::kSum);
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(Failure, TheFirstErrorStopsAllRanksAndIsReported) {
  for (const int failing : {0, 3, 7}) {
    const Caught caught = caught_from(8, 60, [failing](RankBed& bed) {
      for (int i = 0; i < 10; ++i) {
        if (i == 4 && bed.comm->rank() == failing) fail_user("disk {} is full", failing);
        reduce_once(bed, *bed.comm, "loop");
      }
    });
    EXPECT_EQ(caught.fault, Fault::kUser);
    EXPECT_EQ(caught.message, fmt::format("disk {} is full", failing));
  }
}

TEST(Failure, PeersSayWhoFailedAndWhy) {
  std::vector<std::string> messages(4);
  EXPECT_THROW(run_ranks(4, 60,
                         [&messages](RankBed& bed) {
                           if (bed.comm->rank() == 2) fail_run("no memory");
                           try {
                             reduce_once(bed, *bed.comm, "x");
                           } catch (const Error& error) {
                             EXPECT_EQ(error.fault(), Fault::kLost);
                             messages[static_cast<std::size_t>(bed.comm->rank())] = error.what();
                             EXPECT_THROW(bed.comm->barrier(), Error);
                             throw;
                           }
                         }),
               Error);
  for (const int rank : {0, 1, 3}) {
    EXPECT_EQ(messages[static_cast<std::size_t>(rank)], "rank 2 failed: no memory");
  }
}

TEST(Failure, AStartedCallOfARankThatFailsIsNotTouched) {
  for (int round = 0; round < 20; ++round) {
    const Caught caught = caught_from(4, 60, [](RankBed& bed) {
      const Tensor t = bed.alloc({1 << 20}, DType::kF32);
      // Destroyed before the arena of `bed`, as a rank's groups are.
      const auto group = bed.comm->subgroup("all", bed.comm->members(), 1);
      const Token token = group->start_all_reduce(t, Reduce::kSum);
      if (bed.comm->rank() == 1) fail_run("rank one stops");
      group->wait(token);
    });
    EXPECT_EQ(caught.message, "rank one stops");
  }
}

void sleep_until(const std::atomic<bool>& flag) {
  while (!flag) {
    std::this_thread::sleep_for(1ms);
  }
}

// Runs `act`, which must throw, and raises `flag` then.
void raise_when_thrown(std::atomic<bool>& flag, const std::function<void()>& act) {
  try {
    act();
  } catch (const Error&) {
    flag = true;
    throw;
  }
}

TEST(Failure, ADeadlineNamesTheRankAndTheCallsOfBoth) {
  std::atomic<bool> is_over = false;
  const Caught caught = caught_from(6, 0.1, [&is_over](RankBed& bed) {
    const int rank = bed.comm->rank();
    if (rank < 4) return;
    const auto tp = bed.comm->subgroup("tp", {4, 5}, 1);
    reduce_once(bed, *tp, "h.6.attn");
    if (rank == 4) return sleep_until(is_over);
    raise_when_thrown(is_over, [&] { reduce_once(bed, *tp, "h.7.mlp.down"); });
  });
  EXPECT_EQ(caught.fault, Fault::kLost);
  EXPECT_EQ(caught.message,
            "rank 5 (tp group 4,5) waited 0.1 s in all_reduce 'h.7.mlp.down'; rank 4 has gone on "
            "from all_reduce 'h.6.attn' (tp)");
}

TEST(Failure, ADeadlineSaysWhereTheOtherWaits) {
  std::atomic<bool> is_started = false;
  const Caught caught = caught_from(3, 0.5, [&is_started](RankBed& bed) {
    const int rank = bed.comm->rank();
    if (rank == 0) return;
    const auto tp = bed.comm->subgroup("tp", {1, 2}, 1);
    const Where where(bed.ledger, rank == 2 ? "h.7.mlp.down" : "h.6.attn");
    if (rank == 2) {
      const Token token = tp->start_all_reduce(bed.alloc({5}, DType::kF32), Reduce::kSum);
      is_started = true;
      tp->wait(token);
    } else {
      sleep_until(is_started);
      std::this_thread::sleep_for(100ms);
      const Tensor t = bed.alloc({4}, DType::kF32);
      bed.comm->subgroup("dp", {0, 1}, 2)->all_gather(t, t.flat(2, 2));
    }
  });
  // Rank 1 may be first when this machine is slow.
  EXPECT_TRUE(contains(caught.message,
                       "waited 0.5 s in all_reduce 'h.7.mlp.down'; rank 1 is in "
                       "all_gather 'h.6.attn' (dp)") ||
              contains(caught.message, "rank 1 (dp group 0,1) waited 0.5 s"))
      << caught.message;
}

TEST(Failure, ADeadlineNamesAllMissingRanks) {
  std::atomic<bool> is_posted = false;
  std::atomic<bool> is_over = false;
  const Caught caught = caught_from(4, 0.1, [&](RankBed& bed) {
    const auto tp = bed.comm->subgroup("tp", bed.comm->members(), 1);
    const int rank = bed.comm->rank();
    const Where where(bed.ledger, "a");
    const Tensor t = bed.alloc({5}, DType::kF32);
    if (rank == 0) {
      const Token token = tp->start_all_reduce(t, Reduce::kSum);
      is_posted = true;
      sleep_until(is_over);
      tp->wait(token);
    }
    if (rank == 1) {
      sleep_until(is_posted);
      raise_when_thrown(is_over, [&] { tp->all_reduce(t, Reduce::kSum); });
    }
    sleep_until(is_over);
  });
  EXPECT_EQ(caught.message,
            "rank 1 (tp group 0,1,2,3) waited 0.1 s in all_reduce 'a'; rank 2 has made no call, "
            "rank 3 has made no call");
}

TEST(Failure, ADeadlineCoversMessages) {
  std::atomic<bool> is_over = false;
  const Caught caught = caught_from(2, 0.1, [&is_over](RankBed& bed) {
    const Where where(bed.ledger, "F3");
    if (bed.comm->rank() == 1) return sleep_until(is_over);
    raise_when_thrown(is_over, [&bed] {
      bed.comm->wait(bed.comm->start_recv(bed.alloc({3}, DType::kF32), 1, 3));
    });
  });
  EXPECT_EQ(caught.message,
            "rank 0 (world group 0,1) waited 0.1 s in recv 'F3'; rank 1 has made no call");
}

TEST(Failure, ARankThatEndedIsNotWaitedFor) {
  const auto begin = std::chrono::steady_clock::now();
  const Caught caught = caught_from(3, 60, [](RankBed& bed) {
    reduce_once(bed, *bed.comm, "a");
    if (bed.comm->rank() != 1) reduce_once(bed, *bed.comm, "b");
  });
  EXPECT_EQ(caught.fault, Fault::kLost);
  EXPECT_TRUE(contains(caught.message, "waits in all_reduce 'b', but rank 1 has left that group"))
      << caught.message;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
}

TEST(Failure, OtherCallsAreADivergence) {
  const auto diverge = [](const std::function<void(Communicator&, const Tensor&)>& other) {
    return caught_from(3, 60, [&other](RankBed& bed) {
      const Tensor t = bed.alloc({6}, DType::kF32);
      const bool is_other = bed.comm->rank() == 1;
      const Where where(bed.ledger, is_other ? "there" : "here");
      if (is_other) {
        other(*bed.comm, t);
      } else {
        bed.comm->all_reduce(t, Reduce::kSum);
      }
    });
  };
  const Caught kind = diverge(
      [](Communicator& comm, const Tensor& t) { comm.all_gather(t, t.flat(2 * comm.rank(), 2)); });
  EXPECT_EQ(kind.fault, Fault::kLost);
  EXPECT_TRUE(contains(kind.message, "all_gather 'there' of [6] f32 from [2] f32")) << kind.message;
  EXPECT_TRUE(contains(kind.message, "all_reduce 'here' (sum) of [6] f32")) << kind.message;
  EXPECT_TRUE(contains(kind.message, "diverged")) << kind.message;
  const Caught shape = diverge(
      [](Communicator& comm, const Tensor& t) { comm.all_reduce(t.flat(0, 5), Reduce::kSum); });
  EXPECT_TRUE(contains(shape.message, "(sum) of [5] f32")) << shape.message;
  const Caught reduce =
      diverge([](Communicator& comm, const Tensor& t) { comm.all_reduce(t, Reduce::kMax); });
  EXPECT_TRUE(contains(reduce.message, "(max) of [6] f32")) << reduce.message;
  const Caught root =
      diverge([](Communicator& comm, const Tensor& t) { comm.broadcast(t, comm.rank()); });
  EXPECT_TRUE(contains(root.message, "broadcast 'there' of [6] f32 from rank 1")) << root.message;
}

TEST(Failure, TheSameCallAtAnotherPlaceIsADivergence) {
  const Caught caught = caught_from(3, 60, [](RankBed& bed) {
    if (bed.comm->rank() != 1) reduce_once(bed, *bed.comm, "h.6.attn");
    reduce_once(bed, *bed.comm, "h.7.mlp.down");
  });
  EXPECT_EQ(caught.fault, Fault::kLost);
  EXPECT_TRUE(contains(caught.message, "all_reduce 'h.6.attn' (sum) of [5] f32")) << caught.message;
  EXPECT_TRUE(contains(caught.message, "all_reduce 'h.7.mlp.down'")) << caught.message;
  EXPECT_TRUE(contains(caught.message, "world group 0,1,2")) << caught.message;
}

TEST(Failure, TheRankAtTheEndOfAChainIsNamed) {
  std::atomic<bool> is_over = false;
  const Caught caught = caught_from(4, 0.3, [&is_over](RankBed& bed) {
    const int rank = bed.comm->rank();
    if (rank == 3) return sleep_until(is_over);
    const auto group = bed.comm->subgroup(fmt::format("g{}", rank), {rank, rank + 1}, 1);
    raise_when_thrown(is_over, [&] { reduce_once(bed, *group, fmt::format("call {}", rank)); });
  });
  EXPECT_EQ(caught.fault, Fault::kLost);
  EXPECT_TRUE(contains(caught.message, "rank 3 has made no call")) << caught.message;
}

TEST(Failure, RanksThatWaitForEachOtherAreAllNamed) {
  std::atomic<int> num_waiting = 0;
  const Caught caught = caught_from(3, 0.3, [&num_waiting](RankBed& bed) {
    const int rank = bed.comm->rank();
    const int next = (rank + 1) % 3;
    const auto group = bed.comm->subgroup(fmt::format("g{}", rank),
                                          {std::min(rank, next), std::max(rank, next)}, 1);
    ++num_waiting;
    while (num_waiting < 3) {
      std::this_thread::yield();
    }
    reduce_once(bed, *group, "round");
  });
  EXPECT_EQ(caught.fault, Fault::kLost);
  int named = 0;
  for (int rank = 0; rank < 3; ++rank) {
    named +=
        contains(caught.message, fmt::format("rank {} is in all_reduce 'round' (g{})", rank, rank))
            ? 1
            : 0;
  }
  EXPECT_EQ(named, 2) << caught.message;  // and the one that speaks
}

// A long save is not a hang.
TEST(Failure, SignsOfLifeHoldTheDeadlineOff) {
  const Caught caught = caught_from(2, 2, [](RankBed& bed) {
    if (bed.comm->rank() == 1) {
      for (int i = 0; i < 30; ++i) {
        std::this_thread::sleep_for(100ms);
        bed.comm->sign_of_life(0);
      }
    }
    reduce_once(bed, *bed.comm, "after the save");
  });
  EXPECT_EQ(caught.message, "");
}

TEST(Failure, AnAnnouncedSilenceIsAddedToTheDeadline) {
  const auto silent = [](double busy_s, bool comes) {
    std::atomic<bool> is_over = false;
    return caught_from(2, 0.2, [&is_over, busy_s, comes](RankBed& bed) {
      if (bed.comm->rank() == 1) {
        bed.comm->sign_of_life(busy_s);
        if (!comes) return sleep_until(is_over);
        std::this_thread::sleep_for(600ms);
      }
      raise_when_thrown(is_over, [&bed] { reduce_once(bed, *bed.comm, "after the save"); });
    });
  };
  EXPECT_EQ(silent(30, true).message, "");
  EXPECT_TRUE(contains(silent(0.4, false).message, "waited 0.2 s in all_reduce 'after the save'"));
}

TEST(FailureDeathTest, ARankThatHangsOutsideOfCallsDoesNotKeepTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto hang = [](const std::function<void()>& third) {
    run_ranks(3, 0.3, [&third](RankBed& bed) {
      if (bed.comm->rank() == 2) {
        for (;;) {
          std::this_thread::sleep_for(1s);
        }
      }
      if (bed.comm->rank() == 1) third();
      reduce_once(bed, *bed.comm, "a");
    });
  };
  EXPECT_EXIT(hang([] {}), testing::ExitedWithCode(4),
              "world group 0,1,2. waited 0.3 s in all_reduce 'a'; .*rank 2 has made no call and "
              "did not stop");
  EXPECT_EXIT(hang([] { fail_user("the disk is full"); }), testing::ExitedWithCode(2),
              "orthant: the disk is full; rank 2 has made no call and did not stop");
}

TEST(Failure, ForgottenWaitsAreReported) {
  const Caught caught = caught_from(2, 60, [](RankBed& bed) {
    const Tensor t = bed.alloc({6}, DType::kF32);
    const Token token = bed.comm->start_all_reduce(t, Reduce::kSum);
    if (bed.comm->rank() == 0) {
      bed.comm->wait(token);
      reduce_once(bed, *bed.comm, "next");
    }
  });
  EXPECT_TRUE(contains(caught.message, "rank 1 failed: it stopped before its 1 started"))
      << caught.message;
}

TEST(Checks, NameTheCallAndTheGroup) {
  RankBed bed(0, 4);
  const Where where(bed.ledger, "h.0");
  const Tensor t = bed.alloc({10}, DType::kF32);
  EXPECT_EQ(message_of([&] { bed.comm->all_gather(t, t.flat(0, 3)); }),
            "all_gather 'h.0' in group 'world': whole is [10], part is [3]; 4 parts must fill the "
            "whole");
  EXPECT_THROW(bed.comm->all_gather(t, bed.alloc({10}, DType::kBF16)), Error);
  EXPECT_THROW(bed.comm->reduce_scatter(t.flat(1, 2), t.flat(0, 8)), Error);
  EXPECT_THROW(bed.comm->all_reduce(bed.alloc({4}, DType::kI32), Reduce::kSum), Error);
  EXPECT_THROW(bed.comm->all_reduce(Tensor(), Reduce::kSum), Error);
  EXPECT_THROW(bed.comm->broadcast(t, 4), Error);
  EXPECT_THROW((void)bed.comm->start_send(t, 0, 0), Error);
  EXPECT_THROW((void)bed.comm->start_recv(t, -1, 0), Error);
  EXPECT_THROW(bed.comm->subgroup("x", {1, 2}, 1), Error);
  EXPECT_THROW(bed.comm->subgroup("x", {1, 0}, 1), Error);
  EXPECT_THROW(bed.comm->subgroup("x", {0, 4}, 1), Error);
  EXPECT_TRUE(bed.ledger.entries().empty());
}

}  // namespace
}  // namespace orthant
