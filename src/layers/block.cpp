#include "layers/block.h"

#include "base/random.h"

namespace orthant {

Block::Block(int id, std::string name, const BlockConfig& config,
             const std::vector<ParamSpec>& specs, int block, const Mesh& mesh)
    : Layer(id, name),
      dropout_(config.dropout),
      attention_site_(stream_of(name + ".attn.residual_dropout")),
      mlp_site_(stream_of(name + ".mlp.residual_dropout")),
      norm1_(specs, name + ".attn.norm", config.norm, config.norm_eps, mesh),
      attention_(config, specs, name + ".attn", block, mesh),
      norm2_(specs, name + ".mlp.norm", config.norm, config.norm_eps, mesh),
      mlp_(config, specs, mesh) {}

void Block::forward(Context& ctx, const Flow& in, Flow& out, Stash& stash) const {
  auto& saved = stash.make<Saved>(id());
  const Shape shape = in.x.shape;
  const Tensor sum = in.pending.present() ? stash.alloc(shape, in.x.dtype) : Tensor{};
  norm1_.forward(ctx, in, sum, stash, saved.norm1);
  {
    Frame frame(ctx.work);
    const Tensor branch = frame.alloc(shape, in.x.dtype);
    const Token ready = attention_.forward(ctx, branch, saved.norm1.y, stash, saved.attention);
    if (drops(ctx)) {
      ctx.mesh.tp().wait(ready);
      drop(ctx, branch, branch, attention_site_);
    }
    const Flow middle{
        .x = saved.norm1.sum, .pending = branch, .ready = drops(ctx) ? Token{} : ready};
    norm2_.forward(ctx, middle, out.x, stash, saved.norm2);
  }
  out.ready = mlp_.forward(ctx, out.pending, saved.norm2.y, stash, saved.mlp);
  if (drops(ctx)) {
    ctx.mesh.tp().wait(out.ready);
    out.ready = {};
    drop(ctx, out.pending, out.pending, mlp_site_);
  }
}

Tensor Block::backward_input(Context& ctx, const Tensor& dy, Stash& stash) const {
  auto& saved = stash.get<Saved>(id());
  Frame frame(ctx.work);
  const Tensor d_normed = frame.alloc(dy.shape, dy.dtype);
  saved.d_mlp = drop_gradient(ctx, dy, mlp_site_, stash);
  mlp_.backward_input(ctx, d_normed, saved.d_mlp, saved.mlp);
  const Tensor d_middle = norm2_.backward_input(ctx, d_normed, dy, stash, saved.norm2);
  saved.d_attention = drop_gradient(ctx, d_middle, attention_site_, stash);
  attention_.backward_input(ctx, d_normed, saved.d_attention, saved.attention);
  return norm1_.backward_input(ctx, d_normed, d_middle, stash, saved.norm1);
}

void Block::backward_weight(Context& ctx, Stash& stash) const {
  auto& saved = stash.get<Saved>(id());
  mlp_.backward_weight(ctx, saved.d_mlp, saved.norm2.y, saved.mlp);
  norm2_.backward_weight(ctx, saved.norm2);
  attention_.backward_weight(ctx, saved.d_attention, saved.norm1.y, saved.attention);
  norm1_.backward_weight(ctx, saved.norm1);
}

void Block::drop(Context& ctx, const Tensor& y, const Tensor& x, std::uint64_t site) const {
  ctx.ops.run(Dropout{.y = y,
                      .x = x,
                      .sample_ids = ctx.micro.sample_ids,
                      .step_state = ctx.step_state,
                      .S = ctx.micro.S,
                      .first_row = 0,
                      .p = dropout_,
                      .site = site});
}

// Without dropout the branch's gradient is the residual's.
Tensor Block::drop_gradient(Context& ctx, const Tensor& dy, std::uint64_t site,
                            Stash& stash) const {
  if (!drops(ctx)) return dy;
  const Tensor dropped = stash.alloc(dy.shape, dy.dtype);
  drop(ctx, dropped, dy, site);
  return dropped;
}

void Block::collect(std::vector<Param*>& out) {
  norm1_.collect(out);
  attention_.collect(out);
  norm2_.collect(out);
  mlp_.collect(out);
}

}  // namespace orthant
