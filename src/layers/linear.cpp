#include "layers/linear.h"

namespace orthant {
namespace {

// Parameters that follow each other in memory, seen as one tensor of `shape`.
Tensor joined_values(const std::vector<Param>& params, const Shape& shape) {
  if (params.empty()) return {};
  const Tensor& first = params.front().value;
  return {.data = first.data, .shape = shape, .dtype = first.dtype};
}

Tensor joined_grads(const std::vector<Param>& params, const Shape& shape) {
  if (params.empty()) return {};
  return {.data = params.front().grad.data, .shape = shape, .dtype = DType::kF32};
}

std::vector<Param> parts_of(const std::vector<ParamSpec>& specs, const Mesh& mesh) {
  std::vector<Param> params;
  for (const ParamSpec& spec : specs) {
    params.push_back(make_param(spec, mesh.coord(Axis::kTp), mesh.size(Axis::kTp)));
  }
  return params;
}

}  // namespace

Linear::Linear(const std::vector<ParamSpec>& weights, const std::vector<ParamSpec>& biases,
               std::int64_t in, Split split, const Mesh& mesh)
    : weights_(parts_of(weights, mesh)),
      biases_(parts_of(biases, mesh)),
      in_(in),
      out_(0),
      split_(split) {
  for (const Param& weight : weights_) {
    out_ += weight.local.count() / in_;
  }
}

Token Linear::forward(Context& ctx, const Tensor& y, const Tensor& x) const {
  const bool adds_bias = split_ == Split::kColumn || ctx.mesh.tp().rank() == 0;
  ctx.ops.run(LinearFwd{.y = y,
                        .x = x,
                        .w = joined_values(weights_, {out_, in_}),
                        .b = adds_bias ? joined_values(biases_, {out_}) : Tensor{}});
  return split_ == Split::kRow ? ctx.mesh.tp().start_all_reduce(y, Reduce::kSum) : Token{};
}

void Linear::backward_input(Context& ctx, const Tensor& dx, const Tensor& dy) const {
  ctx.ops.run(LinearBwdInput{.dx = dx, .dy = dy, .w = joined_values(weights_, {out_, in_})});
  if (split_ == Split::kColumn) ctx.mesh.tp().all_reduce(dx, Reduce::kSum);
}

void Linear::backward_weight(Context& ctx, const Tensor& dy, const Tensor& x) const {
  ctx.ops.run(LinearBwdWeight{.dw = joined_grads(weights_, {out_, in_}),
                              .db = joined_grads(biases_, {out_}),
                              .dy = dy,
                              .x = x});
}

void Linear::collect(std::vector<Param*>& out) {
  for (Param& weight : weights_) {
    out.push_back(&weight);
  }
  for (Param& bias : biases_) {
    out.push_back(&bias);
  }
}

}  // namespace orthant
