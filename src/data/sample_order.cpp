#include "data/sample_order.h"

#include "base/check.h"
#include "base/text.h"

namespace orthant {

OrderKind parse_order(std::string_view name) {
  if (name == "sequential") return OrderKind::kSequential;
  if (name == "shuffled") return OrderKind::kShuffled;
  if (name == "megatron") return OrderKind::kMegatron;
  const std::vector<std::string> known = {"sequential", "shuffled", "megatron"};
  fail_user("data.order={} is unknown; did you mean {}? Known: {}", name, nearest(name, known),
            join(known));
}

}  // namespace orthant
