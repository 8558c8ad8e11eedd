// Ranks that are threads, and whose calls go wrong in a way that a test chooses: what a mistake in
// a layer, a store or a schedule would do to a training.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/check.h"
#include "comm/backends.h"
#include "train/trial.h"

namespace orthant::test {

enum class Wrong : std::uint8_t {
  kNothing,
  kLeftOut,      // a collective is not made
  kTwice,        // it is made two times
  kGivesZero,    // a collective is made of zeros on this rank
  kGetsZero,     // a message arrives as zeros
  kGetsALittle,  // a message arrives with another last bit of its first number
};

// What goes wrong in a call of world rank `rank` in `group`. All members must leave out the same.
using CallFault = std::function<Wrong(const std::string& group, int rank, const Call& call)>;

// A group of threads in which some calls go wrong.
class FaultyGroup final : public Communicator {
 public:
  // What the groups of one rank record beneath this one, which nobody reads.
  struct Beneath {
    Ledger ledger;
    InFlight in_flight;
  };

  FaultyGroup(std::unique_ptr<Communicator> inner, int lane, const CommParts& parts,
              CallFault fault, std::shared_ptr<Beneath> beneath)
      : Communicator(inner->name(), inner->members(), inner->rank(), lane, parts),
        beneath_(std::move(beneath)),
        inner_(std::move(inner)),
        fault_(std::move(fault)) {}

  std::unique_ptr<Communicator> subgroup(std::string name, std::vector<int> members,
                                         int lane) override {
    return std::make_unique<FaultyGroup>(
        inner_->subgroup(std::move(name), std::move(members), lane), lane, parts(), fault_,
        beneath_);
  }

 private:
  void do_start(const Call& call, Token token) override {
    if (call.kind == Call::Kind::kSend) {
      messages_[token.id] = inner_->start_send(call.in, call.peer, call.identity);
    } else if (call.kind == Call::Kind::kRecv) {
      messages_[token.id] = inner_->start_recv(call.out, call.peer, call.identity);
    } else {
      make(call, fault_(name(), world_rank(), call));
    }
  }
  void do_wait(const Call& call, Token token) override {
    if (!is_message(call.kind)) return;
    inner_->wait(messages_.at(token.id));
    messages_.erase(token.id);
    if (call.kind != Call::Kind::kRecv) return;
    const Wrong wrong = fault_(name(), world_rank(), call);
    if (wrong == Wrong::kGetsZero) std::fill_n(call.out.data, call.out.bytes(), std::byte{0});
    if (wrong == Wrong::kGetsALittle) *call.out.data ^= std::byte{1};
  }
  void make(const Call& call, Wrong wrong) {
    const Tensor& own = reads_in(call.kind) ? call.in : call.out;
    if (wrong == Wrong::kGivesZero) std::fill_n(own.data, own.bytes(), std::byte{0});
    if (wrong == Wrong::kTwice) make(call, Wrong::kNothing);
    if (wrong == Wrong::kLeftOut) return;
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
  CallFault fault_;
  std::map<std::int64_t, Token> messages_;
};

inline Wrong nothing_wrong(const std::string& /*group*/, int /*rank*/, const Call& /*call*/) {
  return Wrong::kNothing;
}

// Runs `work` on threads whose calls have the fault.
inline RankRunner ranks_with(const CallFault& fault) {
  return [fault](const RankConfig& config, const RunPlan& plan, const RankWork& work) {
    ThreadWorld world(config.layout.ranks, 60);
    run_rank_threads(world, [&](int r) {
      const auto device = make_host_device();
      const auto join = [&](const CommParts& parts) -> std::unique_ptr<Communicator> {
        auto beneath = std::make_shared<FaultyGroup::Beneath>();
        auto inner = world.join(r, {beneath->ledger, beneath->in_flight});
        return std::make_unique<FaultyGroup>(std::move(inner), 0, parts, fault, std::move(beneath));
      };
      const Backend backend{.device = *device, .ops = "cpu", .join_world = join};
      Rank rank(config, backend, plan.of(r).whole);
      work(rank, r);
    });
  };
}

}  // namespace orthant::test
