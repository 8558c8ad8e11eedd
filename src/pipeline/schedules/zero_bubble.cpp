// zero_bubble: ZB-H1 of Qi et al., "Zero bubble pipeline parallelism" (arXiv:2401.10241). 1f1b with
// backwards in two halves: input gradients do not wait for weight gradients, which fill what would
// be idle. From as many micro-batches as ranks on, a rank is idle for ranks - 1 slots of a step, a
// slot being a forward or half a backward; under 1f1b it is for three times that. A rank holds no
// more micro-batches than the first rank under 1f1b, min(ranks, micros).
#include <algorithm>

#include "base/check.h"
#include "pipeline/schedules/greedy.h"

namespace orthant {

Schedule zero_bubble(int ranks, int micros) {
  ORTHANT_CHECK(ranks > 0 && micros > 0, "schedule: {} ranks and {} micro-batches; both are >= 1",
                ranks, micros);
  const int most = std::min(ranks, micros);
  return greedy_split(straight(ranks), micros, Urgent::kForwards,
                      [ranks, most](const ForwardState& state) {
                        return state.ahead < ranks - state.rank && state.in_flight < most;
                      });
}

}  // namespace orthant
