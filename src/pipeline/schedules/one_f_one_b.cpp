// 1f1b: a rank runs ahead only as far as the ranks behind it need to be busy, then one forward
// and one backward in turn. It holds min(ranks - rank, micros) micro-batches at most.
#include <algorithm>

#include "base/check.h"
#include "pipeline/schedule.h"

namespace orthant {

Schedule one_f_one_b(int ranks, int micros) {
  ORTHANT_CHECK(ranks > 0 && micros > 0, "schedule: {} ranks and {} micro-batches; both are >= 1",
                ranks, micros);
  Schedule schedule(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    RankActions& actions = schedule[static_cast<std::size_t>(rank)];
    const int ahead = std::min(ranks - rank - 1, micros);
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
