// Overlap changes no bit: calls that end when they start, or that begin when they are waited for,
// train what calls beside the work do.
#include <map>

#include <gtest/gtest.h>

#include "tests/support/small_training.h"

namespace orthant::test {
namespace {

enum class When : std::uint8_t { kAtStart, kAtWait };

// What the groups of one rank record beneath this one, which nobody reads.
struct Beneath {
  Ledger ledger;
  InFlight in_flight;
};

// A group of threads whose collectives run whole at one of the two ends of a call.
class Retimed final : public Communicator {
 public:
  Retimed(std::unique_ptr<Communicator> inner, int lane, const CommParts& parts, When when,
          std::shared_ptr<Beneath> beneath)
      : Communicator(inner->name(), inner->members(), inner->rank(), lane, parts),
        beneath_(std::move(beneath)),
        inner_(std::move(inner)),
        when_(when) {}

  std::unique_ptr<Communicator> subgroup(std::string name, std::vector<int> members,
                                         int lane) override {
    return std::make_unique<Retimed>(inner_->subgroup(std::move(name), std::move(members), lane),
                                     lane, parts(), when_, beneath_);
  }

 private:
  void do_start(const Call& call, Token token) override {
    if (call.kind == Call::Kind::kSend) {
      messages_[token.id] = inner_->start_send(call.in, call.peer, call.identity);
    } else if (call.kind == Call::Kind::kRecv) {
      messages_[token.id] = inner_->start_recv(call.out, call.peer, call.identity);
    } else if (when_ == When::kAtStart) {
      run(call);
    }
  }
  void do_wait(const Call& call, Token token) override {
    if (is_message(call.kind)) {
      inner_->wait(messages_.at(token.id));
      messages_.erase(token.id);
    } else if (when_ == When::kAtWait) {
      run(call);
    }
  }
  void run(const Call& call) {
    switch (call.kind) {
      case Call::Kind::kAllReduce: return inner_->all_reduce(call.out, call.reduce);
      case Call::Kind::kAllGather: return inner_->all_gather(call.out, call.in);
      case Call::Kind::kReduceScatter: return inner_->reduce_scatter(call.out, call.in);
      case Call::Kind::kBroadcast: return inner_->broadcast(call.out, call.peer);
      case Call::Kind::kBarrier: return inner_->barrier();
      case Call::Kind::kSend:
      case Call::Kind::kRecv: break;
    }
    fail_run("a message is no collective");
  }

  std::shared_ptr<Beneath> beneath_;
  std::unique_ptr<Communicator> inner_;
  When when_;
  std::map<std::int64_t, Token> messages_;
};

void expect_same_bits_without_overlap(Training training) {
  const Curve overlapping = run(training);
  for (const When when : {When::kAtStart, When::kAtWait}) {
    SCOPED_TRACE(when == When::kAtStart ? "whole at the start" : "whole at the wait");
    training.join = [when](ThreadWorld& world, int rank, const CommParts& parts) {
      auto beneath = std::make_shared<Beneath>();
      auto inner = world.join(rank, {beneath->ledger, beneath->in_flight});
      return std::make_unique<Retimed>(std::move(inner), 0, parts, when, std::move(beneath));
    };
    expect_same_bits(overlapping, run(training));
  }
}

TEST(Overlap, OfTensorAndPipelineParallelismChangesNoBit) {
  expect_same_bits_without_overlap(training_of({small("gpt")}, 2, 2, 2, 1));
}

TEST(Overlap, OfSplitRowsAndGradientsChangesNoBit) {
  Case c{small("llama")};
  c.split_rows = true;
  c.compute = DType::kBF16;
  Training training = training_of(c, 2, 2, 2, 1);
  training.config.layout.schedule = "zero_bubble";
  training.config.layout.zero_stage = 2;
  expect_same_bits_without_overlap(training);
}

TEST(Overlap, OfGatheredValuesChangesNoBit) {
  Training training = training_of({small("bloom")}, 1, 2, 2, 2);
  training.config.layout.schedule = "interleaved";
  training.config.layout.virtual_stages = 2;
  training.config.layout.zero_stage = 3;
  expect_same_bits_without_overlap(training);
}

TEST(Overlap, OfOffloadedStateChangesNoBit) {
  Training training = training_of({small("gpt")}, 1, 1, 4, 1);
  training.config.layout.offload = "optimizer";
  for (const int stage : {1, 3}) {
    training.config.layout.zero_stage = stage;
    expect_same_bits_without_overlap(training);
  }
}

}  // namespace
}  // namespace orthant::test
