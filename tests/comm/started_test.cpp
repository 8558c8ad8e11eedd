// Started calls: overlap, order of waits, who owns the memory, groups side by side, and that calls
// take no memory.
#include <atomic>
#include <thread>

#include <gtest/gtest.h>
#include <malloc.h>

#include "base/turns.h"
#include "tests/comm/rank_bed.h"

namespace orthant {
namespace {

Tensor filled(RankBed& bed, std::int64_t count, float value) {
  const Tensor t = bed.alloc({count}, DType::kF32);
  std::fill_n(t.ptr<float>(), count, value);
  return t;
}

TEST(StartedCalls, OverlapAndEndInOrder) {
  for (const int size : {2, 3, 8}) {
    on_all_transports(size, [size](RankBed& bed) {
      constexpr int kCalls = 24;
      const auto rank = static_cast<float>(bed.comm->rank());
      std::vector<Tensor> sums;
      std::vector<Token> tokens;
      for (int i = 0; i < kCalls; ++i) {
        sums.push_back(filled(bed, 3000 * i + 5, rank + static_cast<float>(i)));
        tokens.push_back(bed.comm->start_all_reduce(sums.back(), Reduce::kSum));
      }
      const int ranks = size * (size - 1) / 2;  // the sum of their numbers
      for (int i = 0; i < kCalls; ++i) {
        bed.comm->wait(tokens[static_cast<std::size_t>(i)]);
        const Tensor& t = sums[static_cast<std::size_t>(i)];
        EXPECT_EQ(t.ptr<float>()[t.count() - 1], static_cast<float>(ranks + size * i));
      }
    });
  }
}

TEST(StartedCalls, DoNotWaitForPeers) {
  std::atomic<int> num_started = 0;
  run_ranks(2, 60, [&](RankBed& bed) {
    const Tensor t = filled(bed, 100000, 1);
    if (bed.comm->rank() == 1) {
      while (num_started == 0) {
        std::this_thread::yield();
      }
    }
    const Token token = bed.comm->start_all_reduce(t, Reduce::kSum);
    ++num_started;
    bed.comm->wait(token);
    EXPECT_EQ(t.ptr<float>()[99999], 2.0f);
  });
}

// Two bodies of work that take turns wait for their own calls in their own order.
TEST(StartedCalls, OfWorkThatTakesTurnsEndInTheOrderOfAll) {
  on_all_transports(2, [](RankBed& bed) {
    Turns turns;
    bed.comm->give_turns([&turns] { return turns.give(); });
    std::vector<int> ended;
    turns.run([&](int body) {
      for (int i = 0; i < 3; ++i) {
        const Tensor sum = filled(bed, 100, static_cast<float>(body));
        const Token token = bed.comm->start_all_reduce(sum, Reduce::kSum);
        const Tensor more = filled(bed, 100, 1);
        const Token second = body == 0 ? bed.comm->start_all_reduce(more, Reduce::kSum) : Token{};
        bed.comm->wait(token);
        ended.push_back(body);
        EXPECT_EQ(sum.ptr<float>()[99], 2.0f * static_cast<float>(body));
        bed.comm->wait(second);
      }
    });
    EXPECT_EQ(ended, (std::vector<int>{0, 1, 0, 1, 0, 1}));
    const Tensor alone = filled(bed, 100, 1);
    bed.comm->wait(bed.comm->start_all_reduce(alone, Reduce::kSum));
    EXPECT_EQ(alone.ptr<float>()[0], 2.0f);
  });
}

// A call ends once all have started it, even while a peer is busy with something else.
TEST(StartedCalls, EndWithoutTheirPeersWaiting) {
  on_all_transports(2, [](RankBed& bed) {
    const Tensor sum = filled(bed, 100000, 1);
    const Tensor message = filled(bed, 3, 7);
    const Token token = bed.comm->start_all_reduce(sum, Reduce::kSum);
    if (bed.comm->rank() == 0) {
      bed.comm->wait(bed.comm->start_recv(message, 1, 0));
      bed.comm->wait(token);
    } else {
      bed.comm->wait(token);
      bed.comm->wait(bed.comm->start_send(message, 0, 0));
    }
    EXPECT_EQ(sum.ptr<float>()[0], 2.0f);
  });
}

TEST(StartedCalls, LetABlockingCallPass) {
  on_all_transports(3, [](RankBed& bed) {
    const Tensor early = filled(bed, 50000, 1);
    const Tensor late = filled(bed, 50000, 2);
    const Token token = bed.comm->start_all_reduce(early, Reduce::kSum);
    bed.comm->all_reduce(late, Reduce::kSum);
    EXPECT_EQ(late.ptr<float>()[7], 6.0f);
    bed.comm->wait(token);
    EXPECT_EQ(early.ptr<float>()[49999], 3.0f);
  });
}

TEST(StartedCalls, AreWaitedForInTheirOrder) {
  RankBed bed(0, 2);
  const Token first = bed.comm->start_all_reduce(filled(bed, 4, 0), Reduce::kSum);
  const Token second = bed.comm->start_all_reduce(filled(bed, 4, 0), Reduce::kMax);
  const Token message = bed.comm->start_send(filled(bed, 4, 0), 1, 0);
  const Token next_message = bed.comm->start_send(filled(bed, 4, 0), 1, 1);
  EXPECT_THROW(bed.comm->wait(second), Error);
  EXPECT_THROW(bed.comm->wait(next_message), Error);
  bed.comm->wait(message);
  bed.comm->wait(next_message);
  bed.comm->wait(first);
  bed.comm->wait(second);
  EXPECT_THROW(bed.comm->wait(first), Error);
  EXPECT_TRUE(bed.in_flight.empty());
}

TEST(StartedCalls, OwnTheirMemoryUntilTheWait) {
  RankBed bed(1, 2);
  const Tensor whole = filled(bed, 8, 0);
  const Tensor part = filled(bed, 4, 0);
  const Token token = bed.comm->start_all_gather(whole, part);
  EXPECT_THROW(bed.comm->all_reduce(whole.flat(7, 1), Reduce::kSum), Error);
  EXPECT_THROW(bed.in_flight.check_write(part, "op"), Error);
  EXPECT_NO_THROW(bed.in_flight.check_read(part, "op"));
  EXPECT_THROW(bed.in_flight.check_read(whole, "op"), Error);
  bed.comm->wait(token);
  EXPECT_NO_THROW(bed.in_flight.check_write(whole, "op"));
}

TEST(Groups, WorkSideBySide) {
  on_all_transports(8, [](RankBed& bed) {
    const int rank = bed.comm->rank();
    const int row = rank / 2;
    const auto pair = bed.comm->subgroup("tp", {2 * row, 2 * row + 1}, 1);
    const auto column =
        bed.comm->subgroup("dp", {rank % 2, rank % 2 + 2, rank % 2 + 4, rank % 2 + 6}, 2);
    EXPECT_EQ(pair->rank(), rank % 2);
    EXPECT_EQ(column->rank(), row);
    for (int round = 0; round < 50; ++round) {
      Frame frame(bed.arena);
      const Tensor a = filled(bed, 20011, static_cast<float>(rank));
      const Tensor b = filled(bed, 20011, static_cast<float>(rank));
      // Half of the ranks wait in the other order.
      const Token started_a = pair->start_all_reduce(a, Reduce::kSum);
      const Token started_b = column->start_all_reduce(b, Reduce::kSum);
      if (row % 2 == 0) pair->wait(started_a);
      column->wait(started_b);
      if (row % 2 != 0) pair->wait(started_a);
      EXPECT_EQ(a.ptr<float>()[20010], static_cast<float>(4 * row + 1));
      EXPECT_EQ(b.ptr<float>()[20010], static_cast<float>(4 * (rank % 2) + 12));
    }
  });
}

TEST(Groups, OfTheSameNameAndMembersAreApart) {
  on_all_transports(2, [](RankBed& bed) {
    const auto first = bed.comm->subgroup("pair", {0, 1}, 1);
    const auto second = bed.comm->subgroup("pair", {0, 1}, 2);
    const Tensor a = filled(bed, 9, 1);
    const Tensor b = filled(bed, 9, 5);
    const bool is_first = bed.comm->rank() == 0;
    const Token started_b = is_first ? Token{} : second->start_all_reduce(b, Reduce::kSum);
    first->all_reduce(a, Reduce::kSum);
    if (is_first) {
      second->all_reduce(b, Reduce::kSum);
    } else {
      second->wait(started_b);
    }
    EXPECT_EQ(a.ptr<float>()[0], 2.0f);
    EXPECT_EQ(b.ptr<float>()[0], 10.0f);
  });
}

TEST(Groups, OfOneDoNothingAndRecordNothing) {
  run_ranks(2, 60, [](RankBed& bed) {
    const auto self = bed.comm->subgroup("tp", {bed.comm->rank()}, 1);
    const Tensor t = filled(bed, 6, 3);
    self->all_reduce(t, Reduce::kSum);
    self->all_gather(t, t);
    self->reduce_scatter(t, t);
    self->broadcast(t, 0);
    self->barrier();
    const Token token = self->start_all_reduce(t, Reduce::kMax);
    EXPECT_TRUE(token.done());
    self->wait(token);
    EXPECT_EQ(t.ptr<float>()[5], 3.0f);
    EXPECT_TRUE(bed.ledger.entries().empty());
    EXPECT_THROW(self->all_gather(t, filled(bed, 6, 0)), Error);
  });
}

TEST(Groups, AreReleasedAndMadeAgainInOneWorld) {
  ThreadWorld world(3, 60);
  for (int run = 0; run < 3; ++run) {
    run_rank_threads(world, [&world](int rank) {
      RankBed bed(world, rank);
      const Tensor t = filled(bed, 70000, 1);
      bed.comm->all_reduce(t, Reduce::kSum);
      EXPECT_EQ(t.ptr<float>()[69999], 3.0f);
    });
  }
}

TEST(StartedCalls, TakeNoMemoryOverTime) {
  // Sanitizers report an empty heap here.
  std::size_t before = 0;
  on_all_transports(4, [&before](RankBed& bed) {
    const int rank = bed.comm->rank();
    const Tensor sum = filled(bed, 70000, 0);
    const Tensor whole = filled(bed, 4 * 9000, 0);
    const Tensor out = filled(bed, 100, 0);
    const Tensor in = filled(bed, 100, 0);
    const auto step = [&] {
      for (int i = 0; i < 100; ++i) {
        const Token a = bed.comm->start_all_reduce(sum, Reduce::kSum);
        const Token b = bed.comm->start_all_gather(whole, whole.flat(rank * 9000, 9000));
        const Token c = bed.comm->start_send(out, (rank + 1) % 4, i);
        const Token d = bed.comm->start_recv(in, (rank + 3) % 4, i);
        bed.comm->wait(a);
        bed.comm->wait(c);
        bed.comm->wait(d);
        bed.comm->wait(b);
      }
      bed.ledger.restart();
      bed.comm->barrier();
    };
    for (int i = 0; i < 3; ++i) {
      step();
    }
    if (rank == 0) before = ::mallinfo2().uordblks + ::mallinfo2().hblkhd;
    bed.comm->barrier();
    for (int i = 0; i < 10; ++i) {
      step();
    }
    if (rank == 0) {
      const std::size_t after = ::mallinfo2().uordblks + ::mallinfo2().hblkhd;
      EXPECT_LE(after, before + 4096);
    }
    bed.comm->barrier();
  });
}

}  // namespace
}  // namespace orthant
