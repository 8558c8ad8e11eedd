// gpipe: all forwards, then all backwards. The backwards run in micro order as 1f1b's do, so that
// weight gradients have the same bits under both.
#include "pipeline/schedule.h"

namespace orthant {

Schedule gpipe(int ranks, int micros) {
  Schedule schedule = forward_only(straight(ranks), micros);
  for (RankActions& actions : schedule) {
    for (int micro = 0; micro < micros; ++micro) {
      actions.push_back({Action::Kind::kBackward, 0, micro});
    }
  }
  return schedule;
}

}  // namespace orthant
