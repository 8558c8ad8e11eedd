#include "layers/layer.h"

#include <algorithm>

namespace orthant {

void complete(Context& ctx, const Tensor& y, const Flow& flow) {
  ctx.mesh.tp().wait(flow.ready);
  if (flow.pending.present()) {
    ctx.ops.run(Add{.y = y, .a = flow.x, .b = flow.pending});
  } else {
    ctx.ops.run(Copy{.y = y, .x = flow.x});
  }
}

Tensor Layer::backward(Context& ctx, const Tensor& dy, Stash& stash) const {
  const Tensor dx = backward_input(ctx, dy, stash);
  backward_weight(ctx, stash);
  return dx;
}

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
