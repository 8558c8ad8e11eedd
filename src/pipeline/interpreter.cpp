// Interpreter: follows the meaning of a lowered list that lower.cpp states.
#include "pipeline/interpreter.h"

#include <array>
#include <utility>

#include "base/check.h"
#include "pipeline/boundary.h"

namespace orthant {
namespace {

void compute(Stage& stage, const Action& action) {
  switch (action.kind) {
    case Action::Kind::kForward:
      stage.open(action.chunk, action.micro);
      stage.forward(action.chunk, action.micro);
      break;
    case Action::Kind::kBackward: stage.backward(action.chunk, action.micro); break;
    case Action::Kind::kBackwardInput: stage.backward_input(action.chunk, action.micro); break;
    case Action::Kind::kBackwardWeight: stage.backward_weight(action.chunk, action.micro); break;
    default: fail_run("interpreter: {} is no compute action", to_text({action}));
  }
}

}  // namespace

// The message of each boundary buffer.
struct Interpreter::Pending {
  struct Message {
    Token token;     // done when it has been waited for
    int micro = -1;  // -1: none
    int peer = -1;
  };
  using Buffers = std::array<std::array<Message, kMaxChunks>, kNumCargos>;  // by cargo, chunk

  explicit Pending(Interpreter& interpreter)
      : self(interpreter),
        placement(interpreter.placement_),
        rank(interpreter.acts_.rank()) {}

  void post(const Action& action);
  void wait_for(Buffers& buffers, Cargo cargo, Message& last);
  void wait_before(const Action& action);
  void finish(Cargo cargo);

  Communicator& group_of(Cargo cargo) { return cargo == Cargo::kAct ? self.acts_ : self.grads_; }
  static Message& at(Buffers& buffers, Cargo cargo, int chunk) {
    return buffers[static_cast<std::size_t>(cargo)][static_cast<std::size_t>(chunk)];
  }

  Interpreter& self;
  const Placement& placement;
  int rank;
  Buffers sends;
  Buffers receives;
};

void Interpreter::Pending::post(const Action& action) {
  const auto other = crossing_of(action, placement, rank);
  ORTHANT_CHECK(other.has_value(), "interpreter: rank {}: {} has no other side", rank,
                to_text({action}));
  const Cargo cargo = other->cargo;
  const bool is_act = cargo == Cargo::kAct;
  Message& message = at(is_send(action.kind) ? sends : receives, cargo, action.chunk);
  ORTHANT_CHECK(message.micro < 0, "interpreter: rank {}: {} while micro-batch {} has the buffer",
                rank, to_text({action}), message.micro);
  message.micro = action.micro;
  message.peer = other->peer.rank;
  Stage& stage = self.stage_;
  if (is_send(action.kind)) {
    const Tensor out = is_act ? stage.act_out(action.chunk) : stage.grad_out(action.chunk);
    const std::int64_t identity = identity_of(cargo, other->peer.chunk, action.micro);
    message.token = group_of(cargo).start_send(out, other->peer.rank, identity);
  } else {
    const Tensor in = is_act ? stage.act_in(action.chunk) : stage.grad_in(action.chunk);
    const std::int64_t identity = identity_of(cargo, action.chunk, action.micro);
    message.token = group_of(cargo).start_recv(in, other->peer.rank, identity);
  }
}

// Messages of a pair arrive in their order, so those of other chunks before it are waited for
// first.
void Interpreter::Pending::wait_for(Buffers& buffers, Cargo cargo, Message& last) {
  while (!last.token.done()) {
    Message* first = &last;
    for (Message& message : buffers[static_cast<std::size_t>(cargo)]) {
      const bool is_before = message.token.id < first->token.id && message.peer == last.peer;
      if (!message.token.done() && is_before) first = &message;
    }
    group_of(cargo).wait(first->token);
    first->token = {};
  }
}

// Before a compute action: the buffer that it writes is free again, the one that it reads is full.
void Interpreter::Pending::wait_before(const Action& action) {
  if (const auto to = written_by(action, placement, rank); to && !to->is_local) {
    Message& last = at(sends, to->cargo, action.chunk);
    wait_for(sends, to->cargo, last);
    last.micro = -1;
  }
  if (const auto from = read_by(action, placement, rank); from && !from->is_local) {
    Message& own = at(receives, from->cargo, action.chunk);
    ORTHANT_CHECK(
        own.micro == action.micro,
        "interpreter: rank {}: {} needs its own receive, posted is that of micro-batch {}", rank,
        to_text({action}), own.micro);
    wait_for(receives, from->cargo, own);
    own.micro = -1;
  }
}

void Interpreter::Pending::finish(Cargo cargo) {
  for (Message& message : sends[static_cast<std::size_t>(cargo)]) {
    wait_for(sends, cargo, message);
  }
  for (const Message& message : receives[static_cast<std::size_t>(cargo)]) {
    ORTHANT_CHECK(message.micro < 0, "interpreter: rank {}: nothing reads the received {} of {}",
                  rank, cargo == Cargo::kAct ? "activation" : "gradient", message.micro);
  }
}

Interpreter::Interpreter(Communicator& acts, Communicator& grads, Stage& stage, Placement placement)
    : acts_(acts),
      grads_(grads),
      stage_(stage),
      placement_(std::move(placement)) {
  ORTHANT_CHECK(acts_.size() == placement_.num_ranks() && grads_.size() == placement_.num_ranks(),
                "interpreter: the placement has {} ranks, the groups have {} and {}",
                placement_.num_ranks(), acts_.size(), grads_.size());
  ORTHANT_CHECK(placement_.num_chunks(acts_.rank()) <= kMaxChunks,
                "interpreter: {} chunks on rank {}; use at most {}",
                placement_.num_chunks(acts_.rank()), acts_.rank(), kMaxChunks);
}

void Interpreter::run(const RankActions& actions) {
  Pending pending(*this);
  const bool trains = has_backward(actions);
  for (const Action& action : actions) {
    if (!is_compute(action.kind)) {
      pending.post(action);
      continue;
    }
    pending.wait_before(action);
    compute(stage_, action);
    if (!trains || is_last_backward(action.kind)) stage_.close(action.chunk, action.micro);
  }
  pending.finish(Cargo::kAct);
  pending.finish(Cargo::kGrad);
}

}  // namespace orthant
