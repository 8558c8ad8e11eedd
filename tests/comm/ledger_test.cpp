// The ledger of communicators: what is recorded, and that meta and threads record the same.
#include <gtest/gtest.h>

#include "tests/comm/rank_bed.h"

namespace orthant {
namespace {

void act(RankBed& bed) {
  const int rank = bed.comm->rank();
  const auto pair = bed.comm->subgroup("tp", {rank / 2 * 2, rank / 2 * 2 + 1}, 3);
  const Tensor t = bed.alloc({8, 4}, DType::kF32);
  {
    const Where where(bed.ledger, "h.0.mlp");
    pair->all_reduce(t, Reduce::kSum);
  }
  const Where where(bed.ledger, "h.1");
  const Token gather = bed.comm->start_all_gather(t, t.rows(2 * rank, 2));
  const Tensor message = bed.alloc({3}, DType::kBF16);
  const int peer = 1 - pair->rank();
  pair->wait(pair->rank() == 0 ? pair->start_send(message, peer, 9)
                               : pair->start_recv(message, peer, 9));
  bed.comm->wait(gather);
  bed.comm->broadcast(t, 1);
  bed.comm->barrier();
  bed.comm->reduce_scatter(t.rows(2 * rank, 2), t);
}

TEST(CommLedger, OfMetaEqualsThatOfThreads) {
  run_ranks(4, 60, [](RankBed& bed) {
    act(bed);
    RankBed dry(bed.comm->rank(), 4);
    act(dry);
    ASSERT_EQ(bed.ledger.entries().size(), dry.ledger.entries().size());
    for (std::size_t i = 0; i < dry.ledger.entries().size(); ++i) {
      EXPECT_TRUE(same(bed.ledger.entries()[i], dry.ledger.entries()[i])) << "entry " << i;
    }
  });
}

TEST(CommLedger, HoldsAStartAndAWaitOfEveryCall) {
  RankBed bed(1, 4);
  act(bed);
  const auto entries = bed.ledger.entries();
  ASSERT_EQ(entries.size(), 10u);
  const auto comm_lane = static_cast<Lane>(static_cast<int>(Lane::kFirstComm) + 3);
  EXPECT_EQ(entries[0].what, "all_reduce");
  EXPECT_EQ(entries[0].where, "h.0.mlp");
  EXPECT_EQ(entries[0].lane, comm_lane);
  EXPECT_EQ(entries[0].message_bytes, 128);
  EXPECT_EQ(entries[0].group_size, 2);
  EXPECT_EQ(entries[0].peer, -1);
  EXPECT_EQ(entries[0].starts, Token{1});
  EXPECT_EQ(entries[1].waits_for, Token{1});
  EXPECT_EQ(entries[2].what, "all_gather");
  EXPECT_EQ(entries[2].lane, Lane::kFirstComm);
  EXPECT_EQ(entries[3].what, "recv");
  EXPECT_EQ(entries[3].peer, 0);
  EXPECT_EQ(entries[3].message_bytes, 6);
  EXPECT_EQ(entries[5].waits_for, entries[2].starts);
  EXPECT_EQ(entries[6].what, "broadcast");
  EXPECT_EQ(entries[6].peer, 1);
  EXPECT_EQ(entries[8].what, "reduce_scatter");
  EXPECT_EQ(entries[8].message_bytes, 128);
}

TEST(CommLedger, GivesBothSidesOfAMessageOneFingerprint) {
  RankBed sender(0, 4);
  RankBed receiver(1, 4);
  RankBed other(3, 4);
  act(sender);
  act(receiver);
  other.comm->wait(other.comm->start_recv(other.alloc({3}, DType::kBF16), 2, 8));
  EXPECT_EQ(sender.ledger.entries()[3].fingerprint, receiver.ledger.entries()[3].fingerprint);
  EXPECT_NE(sender.ledger.entries()[3].fingerprint, other.ledger.entries()[0].fingerprint);
}

}  // namespace
}  // namespace orthant
