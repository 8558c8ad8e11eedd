// forward_only: the schedule of an evaluation, without backwards.
#include "base/check.h"
#include "pipeline/schedule.h"

namespace orthant {

Schedule forward_only(int stages, int micros) {
  ORTHANT_CHECK(stages > 0 && micros > 0, "schedule: {} stages and {} micro-batches; both are >= 1",
                stages, micros);
  Schedule schedule(static_cast<std::size_t>(stages));
  for (RankActions& actions : schedule) {
    for (int micro = 0; micro < micros; ++micro) {
      actions.push_back({Action::Kind::kForward, 0, micro});
    }
  }
  return schedule;
}

}  // namespace orthant
