// forward_only: the schedule of an evaluation, without backwards, over any placement.
#include "pipeline/schedules/greedy.h"

namespace orthant {

Schedule forward_only(const Placement& placement, int micros) {
  return greedy_forward(placement, micros);
}

}  // namespace orthant
