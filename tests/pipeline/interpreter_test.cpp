// The interpreter on thread ranks with a stage whose tensors say which part and micro-batch wrote
// them; and on meta, with the same ledger.
#include "pipeline/interpreter.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/check.h"
#include "base/random.h"
#include "comm/backends.h"
#include "tests/pipeline/hand_made.h"

namespace orthant {
namespace {

constexpr std::int64_t kNumElements = 5;

// Writes (kind, part, micro) into what it sends and checks that what it reads says the same.
class TracedStage final : public Stage {
 public:
  enum class Memory { kReal, kMeta };

  TracedStage(const Placement& placement, int rank, const InFlight& in_flight, Memory memory)
      : placement_(placement),
        rank_(rank),
        in_flight_(in_flight),
        memory_(memory),
        acts_(2 * static_cast<std::size_t>(placement.num_parts()),
              std::vector<std::int64_t>(kNumElements, -1)),
        grads_(acts_) {}

  void open(int chunk, int micro) override {
    ORTHANT_CHECK(open_.emplace(chunk, micro).second, "slot {}.{} is open", micro, chunk);
    most_open_ = std::max(most_open_, open_.size());
  }
  void close(int chunk, int micro) override {
    ORTHANT_CHECK(open_.erase({chunk, micro}) == 1, "slot {}.{} is not open", micro, chunk);
  }
  Tensor act_in(int chunk) override { return tensor(acts_, part(chunk), is_local(chunk, -1), 0); }
  Tensor act_out(int chunk) override {
    return tensor(acts_, part(chunk) + 1, is_local(chunk, +1), 1);
  }
  Tensor grad_in(int chunk) override {
    return tensor(grads_, part(chunk) + 1, is_local(chunk, +1), 0);
  }
  Tensor grad_out(int chunk) override {
    return tensor(grads_, part(chunk), is_local(chunk, -1), 1);
  }

  void forward(int chunk, int micro) override {
    note(Action::Kind::kForward, chunk, micro);
    if (part(chunk) > 0) read(act_in(chunk), kAct, part(chunk) - 1, micro);
    if (part(chunk) < last_part()) write(act_out(chunk), kAct, part(chunk), micro);
  }
  void backward(int chunk, int micro) override {
    note(Action::Kind::kBackward, chunk, micro);
    pass_gradient(chunk, micro);
  }
  void backward_input(int chunk, int micro) override {
    note(Action::Kind::kBackwardInput, chunk, micro);
    pass_gradient(chunk, micro);
  }
  void backward_weight(int chunk, int micro) override {
    note(Action::Kind::kBackwardWeight, chunk, micro);
  }

  const RankActions& done() const { return done_; }
  bool has_open() const { return !open_.empty(); }
  std::size_t most_open() const { return most_open_; }

 private:
  static constexpr std::int64_t kAct = 1;
  static constexpr std::int64_t kGrad = 2;

  int part(int chunk) const { return placement_.part_at(rank_, chunk); }
  int last_part() const { return placement_.num_parts() - 1; }
  bool is_local(int chunk, int step) const {
    const int other = part(chunk) + step;
    return other >= 0 && other <= last_part() && placement_.at(other).rank == rank_;
  }
  // Border b lies before part b. It has an incoming and an outgoing buffer, within a rank only one.
  static Tensor tensor(std::vector<std::vector<std::int64_t>>& borders, int border, bool is_local,
                       int outgoing) {
    const int index = 2 * border + (is_local ? 0 : outgoing);
    return {
        .data = reinterpret_cast<std::byte*>(borders.at(static_cast<std::size_t>(index)).data()),
        .shape = {kNumElements},
        .dtype = DType::kI64};
  }
  static std::int64_t mark(std::int64_t kind, int part, int micro) {
    return kind * 1'000'000 + part * 1'000 + micro;
  }
  void note(Action::Kind kind, int chunk, int micro) {
    ORTHANT_CHECK(open_.count({chunk, micro}) == 1, "slot {}.{} is not open", micro, chunk);
    done_.push_back({kind, chunk, micro});
  }
  void read(const Tensor& t, std::int64_t kind, int from_part, int micro) {
    in_flight_.check_read(t, "stage");
    if (memory_ == Memory::kMeta) return;
    for (std::int64_t i = 0; i < kNumElements; ++i) {
      ORTHANT_CHECK(t.ptr<std::int64_t>()[i] == mark(kind, from_part, micro) * 10 + i,
                    "rank {} reads {} where {} is expected", rank_, t.ptr<std::int64_t>()[i],
                    mark(kind, from_part, micro) * 10 + i);
    }
  }
  void write(const Tensor& t, std::int64_t kind, int own_part, int micro) {
    in_flight_.check_write(t, "stage");
    if (memory_ == Memory::kMeta) return;
    for (std::int64_t i = 0; i < kNumElements; ++i) {
      t.ptr<std::int64_t>()[i] = mark(kind, own_part, micro) * 10 + i;
    }
  }
  void pass_gradient(int chunk, int micro) {
    if (part(chunk) < last_part()) read(grad_in(chunk), kGrad, part(chunk) + 1, micro);
    if (part(chunk) > 0) write(grad_out(chunk), kGrad, part(chunk), micro);
  }

  const Placement& placement_;
  int rank_;
  const InFlight& in_flight_;
  Memory memory_;
  std::vector<std::vector<std::int64_t>> acts_;  // by border
  std::vector<std::vector<std::int64_t>> grads_;
  std::set<std::pair<int, int>> open_;
  std::size_t most_open_ = 0;
  RankActions done_;
};

// One rank's step, twice over the same stage; its ledger of the second.
std::vector<Entry> run_rank(std::unique_ptr<Communicator> world, const CommParts& parts,
                            const HandMade& made, TracedStage::Memory memory) {
  std::vector<int> all(static_cast<std::size_t>(world->size()));
  std::iota(all.begin(), all.end(), 0);
  const auto acts = world->subgroup("pp acts", all, 1);
  const auto grads = world->subgroup("pp grads", all, 2);
  const int rank = world->rank();
  const RankActions& compute = made.compute[static_cast<std::size_t>(rank)];
  TracedStage stage(made.placement, rank, parts.in_flight, memory);
  Interpreter interpreter(*acts, *grads, stage, made.placement);
  const Schedule lowered = lower(made.compute, made.placement);
  for (int step = 0; step < 2; ++step) {
    parts.ledger.restart();
    interpreter.run(lowered[static_cast<std::size_t>(rank)]);
    ORTHANT_CHECK(parts.in_flight.empty(), "rank {} left a message", rank);
    ORTHANT_CHECK(!stage.has_open(), "rank {} left a slot open", rank);
  }
  RankActions twice = compute;
  twice.insert(twice.end(), compute.begin(), compute.end());
  ORTHANT_CHECK(stage.done() == twice, "rank {} did {}", rank, to_text(stage.done()));
  const auto slots = static_cast<std::size_t>(in_flight(compute));
  ORTHANT_CHECK(stage.most_open() == slots, "rank {} had {} slots open, not {}", rank,
                stage.most_open(), slots);
  const auto entries = parts.ledger.entries();
  return {entries.begin(), entries.end()};
}

// On threads: every boundary tensor has the right content. On meta: the same ledger.
void run_everywhere(const HandMade& made) {
  const int num_ranks = made.placement.num_ranks();
  std::vector<std::vector<Entry>> real(static_cast<std::size_t>(num_ranks));
  ThreadWorld world(num_ranks, 60);
  const auto body = [&](int rank) {
    Ledger ledger;
    InFlight in_flight;
    const CommParts parts{ledger, in_flight};
    real[static_cast<std::size_t>(rank)] =
        run_rank(world.join(rank, parts), parts, made, TracedStage::Memory::kReal);
  };
  ASSERT_NO_THROW(run_rank_threads(world, body));
  for (int rank = 0; rank < num_ranks; ++rank) {
    Ledger ledger;
    InFlight in_flight;
    const CommParts parts{ledger, in_flight};
    const std::vector<Entry> dry =
        run_rank(make_meta_world(rank, num_ranks, parts), parts, made, TracedStage::Memory::kMeta);
    const std::vector<Entry>& entries = real[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(std::equal(entries.begin(), entries.end(), dry.begin(), dry.end(), same))
        << "rank " << rank;
  }
}

TEST(Interpreter, CarriesEveryTensorToItsReader) {
  for (const int ranks : {1, 2, 3, 4, 6}) {
    for (const ScheduleChoice& choice : choices_of(ranks, {1, 2, 3})) {
      for (const int micros : {1, 2, 3, 5, 12}) {
        SCOPED_TRACE(name_of(choice) + fmt::format(", {} micro-batches", micros));
        run_everywhere({make_schedule(choice, micros), placement_of(choice)});
      }
    }
  }
}

TEST(Interpreter, EvaluatesWithOneSlot) {
  for (const int ranks : {1, 2, 4}) {
    for (const Placement& placement : {straight(ranks), looped(ranks, 3), v_shape(ranks)}) {
      for (const int micros : {1, 3, 8}) {
        SCOPED_TRACE(testing::Message() << ranks << " ranks, " << placement.num_parts()
                                        << " parts, " << micros << " micro-batches");
        run_everywhere({forward_only(placement, micros), placement});
      }
    }
  }
}

TEST(Interpreter, RunsChunksAndSplitBackwards) {
  for (const HandMade& made : {interleaved_2x4(), v_2x2(), split_3x4()}) {
    run_everywhere(made);
  }
}

// Forwards and backwards in micro order, otherwise at random; often such ranks wait in a circle.
Schedule random_schedule(int stages, int micros, std::uint64_t seed) {
  Schedule schedule(static_cast<std::size_t>(stages));
  for (int rank = 0; rank < stages; ++rank) {
    int forwards = 0;
    int backwards = 0;
    for (int i = 0; i < 2 * micros; ++i) {
      const auto bits =
          philox(seed, static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(i));
      const bool may_go_back = backwards < forwards;
      const bool forward = forwards < micros && (!may_go_back || uniform(bits[0]) < 0.6);
      schedule[static_cast<std::size_t>(rank)].push_back(
          forward ? Action{Action::Kind::kForward, 0, forwards++}
                  : Action{Action::Kind::kBackward, 0, backwards++});
    }
  }
  return schedule;
}

bool can_run(const HandMade& made) {
  try {
    simulate(lower(made.compute, made.placement), made.placement);
  } catch (const Error&) {
    return false;
  }
  return true;
}

void expect_deadlock(const HandMade& made) {
  ThreadWorld world(made.placement.num_ranks(), 0.2);
  const auto body = [&](int rank) {
    Ledger ledger;
    InFlight in_flight;
    const CommParts parts{ledger, in_flight};
    run_rank(world.join(rank, parts), parts, made, TracedStage::Memory::kReal);
  };
  EXPECT_THROW(run_rank_threads(world, body), Error);
}

// What simulate() lets pass runs, what it calls a deadlock passes every deadline.
TEST(Interpreter, DoesWhatSimulateSays) {
  int passed = 0;
  int stuck = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const HandMade made = {random_schedule(3, 4, seed), straight(3)};
    if (can_run(made)) {
      ++passed;
      run_everywhere(made);
    } else if (++stuck <= 3) {
      expect_deadlock(made);
    }
  }
  EXPECT_GE(passed, 5);
  EXPECT_GE(stuck, 3);
}

TEST(Interpreter, RefusesAListThatIsNotLowered) {
  Ledger ledger;
  InFlight in_flight;
  const CommParts parts{ledger, in_flight};
  const auto world = make_meta_world(1, 2, parts);
  const Placement placement = straight(2);
  TracedStage stage(placement, 1, in_flight, TracedStage::Memory::kMeta);
  Interpreter interpreter(*world, *world, stage, placement);
  EXPECT_THROW(interpreter.run(from_text("F0 B0")), Error);
  EXPECT_THROW(Interpreter(*world, *world, stage, straight(3)), Error);
}

}  // namespace
}  // namespace orthant
