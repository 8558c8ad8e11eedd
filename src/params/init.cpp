// Initial weights by element.
#include <algorithm>

#include "base/random.h"
#include "params/param_source.h"

namespace orthant {

void InitSource::read(const ParamSpec& param, StateKind state, std::int64_t first,
                      std::span<float> into) const {
  if (state != StateKind::kWeight || param.init.kind != Init::Kind::kNormal) {
    const bool ones = state == StateKind::kWeight && param.init.kind == Init::Kind::kOnes;
    std::fill(into.begin(), into.end(), ones ? 1.0f : 0.0f);
    return;
  }
  const std::uint64_t stream = stream_of(param.name);
  for (std::size_t i = 0; i < into.size(); ++i) {
    const auto element = static_cast<std::uint64_t>(first) + i;
    into[i] = static_cast<float>(param.init.std * normal(seed_, stream, element));
  }
}

}  // namespace orthant
