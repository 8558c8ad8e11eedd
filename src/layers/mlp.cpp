#include "layers/mlp.h"

namespace orthant {
namespace {

std::string up_name(Activation activation) {
  return activation == Activation::kSwiglu ? ".mlp.gate_up" : ".mlp.up";
}

}  // namespace

Mlp::Mlp(const BlockConfig& config, const std::vector<ParamSpec>& specs, const Mesh& mesh)
    : activation_(config.activation),
      again_(config.again),
      width_(config.F / mesh.size(Axis::kTp)),
      up_(pick_specs(specs, {up_name(activation_) + ".weight"}),
          pick_specs(specs, {up_name(activation_) + ".bias"}), config.C, Split::kColumn,
          config.rows, mesh),
      down_(pick_specs(specs, {".mlp.down.weight"}), pick_specs(specs, {".mlp.down.bias"}), width_,
            Split::kRow, config.rows, mesh) {}

Token Mlp::forward(Context& ctx, const Tensor& y, const Tensor& x, Stash& stash,
                   Saved& saved) const {
  const Shape shape = {ctx.micro.T(), width_};
  saved.up = stash.alloc({ctx.micro.T(), up_.out_features()}, x.dtype);
  Frame frame(ctx.work);
  saved.act = again_ == Again::kNothing ? stash.alloc(shape, x.dtype) : frame.alloc(shape, x.dtype);
  const bool is_gelu = activation_ == Activation::kGelu;
  ctx.mesh.tp().wait(up_.forward(ctx, saved.up, x, is_gelu ? saved.act : Tensor{}));
  if (!is_gelu) activate(ctx, saved);
  return y.present() ? down_.forward(ctx, y, saved.act) : Token{};
}

void Mlp::activate(Context& ctx, const Saved& saved) const {
  if (activation_ == Activation::kSwiglu) {
    ctx.ops.run(SwigluFwd{.y = saved.act, .gate_up = saved.up});
  } else {
    ctx.ops.run(GeluFwd{.y = saved.act, .x = saved.up});
  }
}

void Mlp::activate_again(Context& ctx, const Room& room, Saved& saved) const {
  saved.act = room.like(saved.act);
  activate(ctx, saved);
}

void Mlp::activate_backward(Context& ctx, const Tensor& d_act, const Saved& saved) const {
  if (activation_ == Activation::kSwiglu) {
    ctx.ops.run(SwigluBwd{.d_gate_up = saved.up, .dy = d_act, .gate_up = saved.up});
  } else {
    ctx.ops.run(GeluBwd{.dx = saved.up, .dy = d_act, .x = saved.up});
  }
}

void Mlp::backward_input(Context& ctx, const Tensor& dx, const Tensor& dy, Saved& saved) const {
  {
    Frame frame(ctx.work);
    const Tensor d_act = frame.alloc(saved.act.shape, saved.act.dtype);
    down_.backward_input(ctx, d_act, dy);
    activate_backward(ctx, d_act, saved);
  }
  up_.backward_input(ctx, dx, saved.up);
}

void Mlp::backward(Context& ctx, const Tensor& dx, const Tensor& dy, const Tensor& x,
                   Saved& saved) const {
  if (activation_ == Activation::kGelu) return backward_through_gelu(ctx, dx, dy, x, saved);
  {
    Frame frame(ctx.work);
    const Tensor d_act = frame.alloc(saved.act.shape, saved.act.dtype);
    down_.backward(ctx, d_act, dy, saved.act);
    activate_backward(ctx, d_act, saved);
  }
  up_.backward(ctx, dx, saved.up, x);
}

void Mlp::backward_through_gelu(Context& ctx, const Tensor& dx, const Tensor& dy, const Tensor& x,
                                const Saved& saved) const {
  Frame frame(ctx.work);
  const Tensor d_up = frame.alloc(saved.up.shape, saved.up.dtype);
  down_.backward(ctx, d_up, dy, saved.act, saved.up);
  up_.backward(ctx, dx, d_up, x);
}

void Mlp::backward_weight(Context& ctx, const Tensor& dy, const Tensor& x,
                          const Saved& saved) const {
  down_.backward_weight(ctx, dy, saved.act);
  up_.backward_weight(ctx, saved.up, x);
}

void Mlp::collect(std::vector<Param*>& out) {
  up_.collect(out);
  down_.collect(out);
}

}  // namespace orthant
