#include "pipeline/programs.h"

#include <algorithm>
#include <utility>

namespace orthant {

Programs::Programs(ScheduleChoice choice)
    : choice_(std::move(choice)),
      placement_(placement_of(choice_)) {}

const Schedule& Programs::training(int micros) {
  return find_or_make(trainings_, micros, true);
}

const Schedule& Programs::evaluation(int micros) {
  return find_or_make(evaluations_, micros, false);
}

const Schedule& Programs::find_or_make(std::deque<Made>& made, int micros, bool trains) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(made.begin(), made.end(),
                                  [micros](const Made& m) { return m.micros == micros; });
  if (found != made.end()) return found->lowered;
  Schedule lowered =
      lower(trains ? make_schedule(choice_, micros) : forward_only(placement_, micros), placement_);
  simulate(lowered, placement_);
  return made.emplace_back(Made{micros, std::move(lowered)}).lowered;
}

}  // namespace orthant
