// Messages between pairs of ranks: order, identity, and both sides in any order of time.
#include <atomic>

#include <gtest/gtest.h>

#include "tests/comm/rank_bed.h"

namespace orthant {
namespace {

Tensor filled(RankBed& bed, std::int64_t count, float value) {
  const Tensor t = bed.alloc({count}, DType::kF32);
  std::fill_n(t.ptr<float>(), count, value);
  return t;
}

TEST(Messages, ArriveInTheOrderOfThePair) {
  on_all_transports(2, [](RankBed& bed) {
    constexpr int kMessages = 50;
    std::vector<Tensor> tensors;
    std::vector<Token> tokens;
    const bool is_sender = bed.comm->rank() == 0;
    for (int i = 0; i < kMessages; ++i) {
      tensors.push_back(filled(bed, 33 + i, is_sender ? static_cast<float>(i) : -1.0f));
      tokens.push_back(is_sender ? bed.comm->start_send(tensors.back(), 1, i)
                                 : bed.comm->start_recv(tensors.back(), 0, i));
    }
    for (int i = 0; i < kMessages; ++i) {
      bed.comm->wait(tokens[static_cast<std::size_t>(i)]);
      const Tensor& t = tensors[static_cast<std::size_t>(i)];
      EXPECT_EQ(t.ptr<float>()[t.count() - 1], static_cast<float>(i));
    }
  });
}

TEST(Messages, GoBothWaysAroundARing) {
  for (int size = 2; size <= 8; ++size) {
    on_all_transports(size, [size](RankBed& bed) {
      const int rank = bed.comm->rank();
      const int next = (rank + 1) % size;
      const int before = (rank + size - 1) % size;
      for (int round = 0; round < 30; ++round) {
        Frame frame(bed.arena);
        const Tensor forth = filled(bed, 1001, static_cast<float>(rank + round));
        const Tensor back = filled(bed, 17, static_cast<float>(-rank - round));
        const Tensor from_before = filled(bed, 1001, 0);
        const Tensor from_next = filled(bed, 17, 0);
        const Token tokens[] = {bed.comm->start_recv(from_before, before, round),
                                bed.comm->start_send(forth, next, round),
                                bed.comm->start_recv(from_next, next, 1000 + round),
                                bed.comm->start_send(back, before, 1000 + round)};
        for (const Token token : tokens) {
          bed.comm->wait(token);
        }
        EXPECT_EQ(from_before.ptr<float>()[1000], static_cast<float>(before + round));
        EXPECT_EQ(from_next.ptr<float>()[16], static_cast<float>(-next - round));
      }
    });
  }
}

class Divergence : public testing::TestWithParam<Transport> {};
INSTANTIATE_TEST_SUITE_P(Messages, Divergence,
                         testing::Values(Transport::kThreads, Transport::kSharedMemory));

TEST_P(Divergence, OfIdentitiesIsFound) {
  const std::string message = message_of([] {
    run_ranks(GetParam(), 3, 60, [](RankBed& bed) {
      const Tensor t = filled(bed, 4, 1);
      if (bed.comm->rank() == 2) return;
      const Where where(bed.ledger, bed.comm->rank() == 0 ? "sendF2" : "recvF3");
      bed.comm->wait(bed.comm->rank() == 0 ? bed.comm->start_send(t, 1, 2)
                                           : bed.comm->start_recv(t, 0, 3));
    });
  });
  EXPECT_NE(message.find("send 'sendF2' of [4] f32, identity 2"), std::string::npos) << message;
  EXPECT_NE(message.find("recv 'recvF3' of [4] f32, identity 3"), std::string::npos) << message;
  EXPECT_NE(message.find("diverged"), std::string::npos) << message;
}

TEST_P(Divergence, OfSizesIsFound) {
  const std::string message = message_of([] {
    run_ranks(GetParam(), 2, 60, [](RankBed& bed) {
      const Tensor t = filled(bed, 4 + bed.comm->rank(), 1);
      bed.comm->wait(bed.comm->rank() == 0 ? bed.comm->start_send(t, 1, 2)
                                           : bed.comm->start_recv(t, 0, 2));
    });
  });
  EXPECT_NE(message.find("send of [4] f32"), std::string::npos) << message;
  EXPECT_NE(message.find("recv of [5] f32"), std::string::npos) << message;
}

}  // namespace
}  // namespace orthant
