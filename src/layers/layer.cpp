#include "layers/layer.h"

#include <algorithm>

namespace orthant {

const ParamSpec* find_spec(const std::vector<ParamSpec>& specs, const std::string& suffix) {
  const auto found = std::find_if(specs.begin(), specs.end(), [&suffix](const ParamSpec& spec) {
    return spec.name.ends_with(suffix);
  });
  return found == specs.end() ? nullptr : &*found;
}

std::vector<ParamSpec> pick_specs(const std::vector<ParamSpec>& specs,
                                  std::initializer_list<std::string> suffixes) {
  std::vector<ParamSpec> picked;
  for (const std::string& suffix : suffixes) {
    const ParamSpec* spec = find_spec(specs, suffix);
    if (spec != nullptr) picked.push_back(*spec);
  }
  return picked;
}

}  // namespace orthant
