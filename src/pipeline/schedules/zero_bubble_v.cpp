// zero_bubble_v: backwards in two halves on a V, where the first and the last part share a rank:
// the first input gradient comes back to a rank as soon as it can. After Qi et al., "Pipeline
// parallelism with controllable memory" (arXiv:2405.15362). A rank holds no more than twice the
// micro-batches that the first rank holds under 1f1b, of parts half as large.
#include <algorithm>

#include "base/check.h"
#include "pipeline/schedules/greedy.h"

namespace orthant {

Schedule zero_bubble_v(int ranks, int micros) {
  ORTHANT_CHECK(ranks > 0 && micros > 0, "schedule: {} ranks and {} micro-batches; both are >= 1",
                ranks, micros);
  const int most = 2 * std::min(ranks, micros);
  return greedy_split(v_shape(ranks), micros, Urgent::kInputGradients,
                      [most](const ForwardState& state) {
                        // The way back must always have a place.
                        return state.in_flight < (state.chunk == 0 ? most - 1 : most);
                      });
}

}  // namespace orthant
