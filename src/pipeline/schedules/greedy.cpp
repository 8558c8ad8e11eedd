#include "pipeline/schedules/greedy.h"

#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "base/check.h"

namespace orthant {
namespace {

constexpr int kNever = std::numeric_limits<int>::max();

enum Pass { kForward, kInput, kWeight, kNumPasses };
constexpr std::array<Action::Kind, kNumPasses> kKinds = {
    Action::Kind::kForward, Action::Kind::kBackwardInput, Action::Kind::kBackwardWeight};

class Greedy {
 public:
  Greedy(const Placement& placement, int micros, std::vector<Pass> order, MayForward may_forward)
      : placement_(placement),
        micros_(micros),
        order_(std::move(order)),
        may_forward_(std::move(may_forward)),
        starts_(static_cast<std::size_t>(placement.num_parts())),
        in_flight_(static_cast<std::size_t>(placement.num_ranks())),
        busy_until_(in_flight_.size()),
        schedule_(in_flight_.size()) {
    ORTHANT_CHECK(micros > 0, "schedule: {} micro-batches; at least 1", micros);
  }

  Schedule run() {
    auto left = static_cast<std::int64_t>(order_.size()) * placement_.num_parts() * micros_;
    for (int slot = 0; left > 0; ++slot) {
      const std::int64_t before = left;
      for (const Pass pass : order_) {
        left -= start_all(pass, slot);
      }
      ORTHANT_CHECK(left < before, "greedy schedule: no rank can go on in slot {}", slot);
    }
    return std::move(schedule_);
  }

 private:
  using Starts = std::array<std::vector<int>, kNumPasses>;  // slot of each micro-batch so far

  // Starts this pass on every free rank that can; one rank's start may let a neighbour start.
  int start_all(Pass pass, int slot) {
    int started = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = placement_.num_ranks() - 1; rank >= 0; --rank) {
        if (busy_until_[static_cast<std::size_t>(rank)] > slot || !start_one(pass, rank, slot))
          continue;
        moved = true;
        ++started;
      }
    }
    return started;
  }

  bool start_one(Pass pass, int rank, int slot) {
    for (int chunk = 0; chunk < placement_.num_chunks(rank); ++chunk) {
      const int part = placement_.part_at(rank, chunk);
      if (!can_start(pass, part, slot)) continue;
      std::vector<int>& done = starts_[static_cast<std::size_t>(part)][pass];
      const int micro = static_cast<int>(done.size());
      done.push_back(slot);
      schedule_[static_cast<std::size_t>(rank)].push_back({kKinds[pass], chunk, micro});
      busy_until_[static_cast<std::size_t>(rank)] = slot + 1;
      if (pass == kForward) ++in_flight_[static_cast<std::size_t>(rank)];
      if (pass == kWeight) --in_flight_[static_cast<std::size_t>(rank)];
      return true;
    }
    return false;
  }

  bool can_start(Pass pass, int part, int slot) const {
    const int micro = count(pass, part);
    if (micro == micros_) return false;
    switch (pass) {
      case kForward: {
        const auto [rank, chunk] = placement_.at(part);
        const ForwardState state{rank, chunk, micro - count(kInput, part),
                                 in_flight_[static_cast<std::size_t>(rank)]};
        return start_of(kForward, part - 1, micro) < slot && is_taken(kForward, part + 1, micro) &&
               (!may_forward_ || may_forward_(state));
      }
      case kInput:
        return start_of(kForward, part, micro) < slot && start_of(kInput, part + 1, micro) < slot &&
               is_taken(kInput, part - 1, micro);
      default: return start_of(kInput, part, micro) < slot;
    }
  }

  // Beyond the ends of the model everything is there from the beginning.
  int start_of(Pass pass, int part, int micro) const {
    if (part < 0 || part == placement_.num_parts()) return -1;
    return micro < count(pass, part)
               ? starts_[static_cast<std::size_t>(part)][pass][static_cast<std::size_t>(micro)]
               : kNever;
  }
  // Whether the reader has begun with the tensor before this one.
  bool is_taken(Pass pass, int reader, int micro) const {
    return micro == 0 || start_of(pass, reader, micro - 1) < kNever;
  }
  int count(Pass pass, int part) const {
    return static_cast<int>(starts_[static_cast<std::size_t>(part)][pass].size());
  }

  const Placement& placement_;
  int micros_;
  std::vector<Pass> order_;  // the most urgent first
  MayForward may_forward_;
  std::vector<Starts> starts_;   // by part
  std::vector<int> in_flight_;   // by rank
  std::vector<int> busy_until_;  // by rank
  Schedule schedule_;
};

}  // namespace

Schedule greedy_forward(const Placement& placement, int micros) {
  return Greedy(placement, micros, {kForward}, {}).run();
}

Schedule greedy_split(const Placement& placement, int micros, Urgent urgent,
                      const MayForward& may_forward) {
  std::vector<Pass> order = {kForward, kInput, kWeight};
  if (urgent == Urgent::kInputGradients) std::swap(order[0], order[1]);
  return Greedy(placement, micros, std::move(order), may_forward).run();
}

}  // namespace orthant
