// 1f1b: a stage runs ahead only as far as the stages behind it need to be busy, then one forward
// and one backward in turn. It holds min(stages - rank, micros) micro-batches at most.
#include <algorithm>

#include "base/check.h"
#include "pipeline/schedule.h"

namespace orthant {

Schedule one_f_one_b(int stages, int micros) {
  ORTHANT_CHECK(stages > 0 && micros > 0, "schedule: {} stages and {} micro-batches; both are >= 1",
                stages, micros);
  Schedule schedule(static_cast<std::size_t>(stages));
  for (int rank = 0; rank < stages; ++rank) {
    RankActions& actions = schedule[static_cast<std::size_t>(rank)];
    const int ahead = std::min(stages - rank - 1, micros);
    for (int micro = 0; micro < ahead; ++micro) {
      actions.push_back({Action::Kind::kForward, 0, micro});
    }
    for (int micro = 0; micro < micros; ++micro) {
      if (micro + ahead < micros) actions.push_back({Action::Kind::kForward, 0, micro + ahead});
      actions.push_back({Action::Kind::kBackward, 0, micro});
    }
  }
  return schedule;
}

}  // namespace orthant
