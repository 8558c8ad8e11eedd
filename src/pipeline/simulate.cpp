// simulate() and bubble(): what a lowered schedule does, before it is run.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "base/check.h"
#include "pipeline/boundary.h"
#include "pipeline/replay.h"
#include "pipeline/schedule.h"

namespace orthant {
namespace {

constexpr int kNone = -1;

// Where a micro-batch's compute actions stand in its rank's list.
struct Passes {
  int forward = kNone;
  int backward = kNone;
  int input = kNone;
  int weight = kNone;

  int& of(Action::Kind kind) {
    switch (kind) {
      case Action::Kind::kForward: return forward;
      case Action::Kind::kBackward: return backward;
      case Action::Kind::kBackwardInput: return input;
      default: return weight;
    }
  }
};

// One rank's compute actions: each once, in an order that can be computed.
class RankCheck {
 public:
  RankCheck(const Schedule& schedule, const Placement& placement, int rank, int num_micros)
      : schedule_(schedule),
        actions_(schedule[static_cast<std::size_t>(rank)]),
        rank_(rank),
        passes_(static_cast<std::size_t>(placement.num_chunks(rank)),
                std::vector<Passes>(static_cast<std::size_t>(num_micros))) {}

  void run(bool trains) {
    for (int place = 0; place < static_cast<int>(actions_.size()); ++place) {
      const Action& action = actions_[static_cast<std::size_t>(place)];
      if (action.chunk < 0 || action.chunk >= static_cast<int>(passes_.size())) {
        fail(place, fmt::format("the rank has {} chunks", passes_.size()));
      }
      if (is_compute(action.kind)) check_order(action, place);
    }
    for (std::size_t chunk = 0; chunk < passes_.size(); ++chunk) {
      for (std::size_t micro = 0; micro < passes_[chunk].size(); ++micro) {
        check_complete(static_cast<int>(chunk), static_cast<int>(micro), trains);
      }
    }
  }

 private:
  void check_order(const Action& action, int place) {
    Passes& passes =
        passes_[static_cast<std::size_t>(action.chunk)][static_cast<std::size_t>(action.micro)];
    if (passes.of(action.kind) != kNone) fail(place, "it is there twice");
    passes.of(action.kind) = place;
    const auto text_of = [&action](Action::Kind kind) {
      return to_text({{kind, action.chunk, action.micro}});
    };
    if (passes.forward == kNone) {
      fail(place, "it comes before its forward " + text_of(Action::Kind::kForward));
    }
    if (action.kind == Action::Kind::kBackwardWeight && passes.input == kNone) {
      fail(place, "it comes before its input gradient " + text_of(Action::Kind::kBackwardInput));
    }
    const bool whole = passes.backward != kNone;
    if (whole && (passes.input != kNone || passes.weight != kNone)) {
      fail(place, "a micro-batch has either B or I and W");
    }
    const bool is_forward = action.kind == Action::Kind::kForward;
    if (!is_forward && !is_last_backward(action.kind)) return;
    int& last = (is_forward ? last_forward_ : last_weight_)[static_cast<std::size_t>(action.chunk)];
    if (action.micro < last) {
      fail(place, fmt::format("{} run in micro order, {} was before",
                              is_forward ? "forwards" : "weight passes", last));
    }
    last = action.micro;
  }

  void check_complete(int chunk, int micro, bool trains) {
    const Passes& passes =
        passes_[static_cast<std::size_t>(chunk)][static_cast<std::size_t>(micro)];
    if (passes.forward == kNone) missing({Action::Kind::kForward, chunk, micro});
    if (!trains || passes.backward != kNone) return;
    if (passes.input == kNone) missing({Action::Kind::kBackward, chunk, micro});
    if (passes.weight == kNone) missing({Action::Kind::kBackwardWeight, chunk, micro});
  }

  [[noreturn]] void missing(const Action& action) const {
    throw ScheduleError(rank_, fmt::format("schedule: rank {}: {} is missing{}", rank_,
                                           to_text({action}), grid_at(kNone)));
  }
  [[noreturn]] void fail(int place, const std::string& what) const {
    const Action& action = actions_[static_cast<std::size_t>(place)];
    throw ScheduleError(rank_, fmt::format("schedule: rank {} at {}: {}{}", rank_,
                                           to_text({action}), what, grid_at(place)));
  }
  std::string grid_at(int place) const {
    std::vector<int> places(schedule_.size(), kNone);
    places[static_cast<std::size_t>(rank_)] = place;
    return grid(schedule_, places);
  }

  const Schedule& schedule_;
  const RankActions& actions_;
  int rank_;
  std::vector<std::vector<Passes>> passes_;  // by chunk, micro
  // Losses and weight gradients are added in micro order: the same bits under every schedule.
  std::vector<int> last_forward_ = std::vector<int>(passes_.size(), kNone);
  std::vector<int> last_weight_ = std::vector<int>(passes_.size(), kNone);
};

void check_compute(const Schedule& lowered, const Placement& placement) {
  ORTHANT_CHECK(static_cast<int>(lowered.size()) == placement.num_ranks(),
                "schedule: {} ranks, the placement has {}", lowered.size(), placement.num_ranks());
  const int num_micros = count_micros(lowered);
  const bool trains = std::any_of(lowered.begin(), lowered.end(), has_backward);
  for (int rank = 0; rank < placement.num_ranks(); ++rank) {
    RankCheck(lowered, placement, rank, num_micros).run(trains);
  }
}

}  // namespace

int simulate(const Schedule& lowered, const Placement& placement) {
  check_compute(lowered, placement);
  // A round is a compute action.
  const ActionTimes rounds = {
      .forward = 1, .backward = 1, .backward_input = 1, .backward_weight = 1};
  Replay replay(lowered, placement, rounds);
  replay.run();
  return static_cast<int>(std::lround(replay.makespan()));
}

double bubble(const Schedule& lowered, const Placement& placement, double forward,
              double backward_input, double backward_weight) {
  ORTHANT_CHECK(forward > 0 && backward_input >= 0 && backward_weight >= 0,
                "bubble: times are {}, {} and {}; the first must be above 0, none below", forward,
                backward_input, backward_weight);
  const ActionTimes times = {.forward = forward,
                             .backward = backward_input + backward_weight,
                             .backward_input = backward_input,
                             .backward_weight = backward_weight};
  Replay replay(lowered, placement, times);
  replay.run();
  const double available = replay.makespan() * placement.num_ranks();
  return available > 0 ? (available - replay.busy()) / available : 0;
}

}  // namespace orthant
