#include "layers/block.h"

#include "base/random.h"

namespace orthant {

Block::Block(int id, const std::string& name, const BlockConfig& config,
             const std::vector<ParamSpec>& specs, int block, const Mesh& mesh)
    : Layer(id, name),
      dropout_(config.dropout),
      rows_(config.rows),
      again_(config.again),
      attention_site_(stream_of(name + ".attn.residual_dropout")),
      mlp_site_(stream_of(name + ".mlp.residual_dropout")),
      norm1_(specs, name + ".attn.norm", config.norm, config, mesh),
      attention_(config, specs, name + ".attn", block, mesh),
      norm2_(specs, name + ".mlp.norm", config.norm, config, mesh),
      mlp_(config, specs, mesh) {}

void Block::forward(Context& ctx, const Flow& in, Flow& out, Stash& stash) const {
  auto& saved = stash.make<Saved>(id());
  const Shape shape = in.x.shape;
  const Tensor sum = in.pending.present() ? stash.alloc(shape, in.x.dtype) : Tensor{};
  Frame frame(ctx.work);
  saved.norm1.y = recomputes() ? frame.alloc(shape, in.x.dtype) : stash.alloc(shape, in.x.dtype);
  norm1_.forward(ctx, in, sum, stash, saved.norm1);
  saved.norm2.y = recomputes() ? saved.norm1.y : stash.alloc(shape, in.x.dtype);
  {
    Frame branches(ctx.work);
    const Tensor whole = branches.alloc(shape.with(0, ctx.micro.T()), in.x.dtype);
    const Tensor branch = own_rows(ctx, rows_, whole);
    const Token ready = attention_.forward(ctx, whole, saved.norm1.y, stash, saved.attention);
    if (drops(ctx)) {
      ctx.mesh.tp().wait(ready);
      drop(ctx, branch, branch, attention_site_);
    }
    const Flow middle{
        .x = saved.norm1.sum, .pending = branch, .ready = drops(ctx) ? Token{} : ready};
    norm2_.forward(ctx, middle, out.x, stash, saved.norm2);
  }
  out.ready = mlp_.forward(ctx, out.pending, saved.norm2.y, stash, saved.mlp);
  if (out.pending.absent()) return;
  out.pending = own_rows(ctx, rows_, out.pending);
  if (drops(ctx)) {
    ctx.mesh.tp().wait(out.ready);
    out.ready = {};
    drop(ctx, out.pending, out.pending, mlp_site_);
  }
}

Tensor Block::backward_input(Context& ctx, const Tensor& dy, Stash& stash) const {
  auto& saved = stash.get<Saved>(id());
  const auto room = [&] {
    return drops(ctx) ? stash.alloc_late(dy.shape, dy.dtype) : Tensor{};
  };
  const Room late = stash.late_room();
  Frame frame(ctx.work);
  const Tensor d_normed = frame.alloc(dy.shape, dy.dtype);
  prepare_mlp(ctx, late, saved);
  saved.d_mlp = drop_gradient(ctx, dy, mlp_site_, room());
  mlp_.backward_input(ctx, d_normed, saved.d_mlp, saved.mlp);
  const Tensor d_middle = norm2_.backward_input(ctx, d_normed, dy, stash, saved.norm2);
  saved.d_attention = drop_gradient(ctx, d_middle, attention_site_, room());
  {
    Frame again(ctx.work);
    prepare_attention(ctx, late, again, saved);
    attention_.backward_input(ctx, d_normed, saved.d_attention, saved.attention);
  }
  return norm1_.backward_input(ctx, d_normed, d_middle, stash, saved.norm1);
}

void Block::backward_weight(Context& ctx, Stash& stash) const {
  auto& saved = stash.get<Saved>(id());
  mlp_.backward_weight(ctx, saved.d_mlp, saved.norm2.y, saved.mlp);
  norm2_.backward_weight(ctx, saved.norm2);
  attention_.backward_weight(ctx, saved.d_attention, saved.norm1.y, saved.attention);
  norm1_.backward_weight(ctx, saved.norm1);
}

Tensor Block::backward(Context& ctx, const Tensor& dy, Stash& stash) const {
  auto& saved = stash.get<Saved>(id());
  const Room work{.arena = ctx.work, .what = MemClass::kWork};
  Frame frame(ctx.work);
  const Tensor d_normed = frame.alloc(dy.shape, dy.dtype);
  const Tensor room = drops(ctx) ? frame.alloc(dy.shape, dy.dtype) : Tensor{};
  {
    const Frame again(ctx.work);
    prepare_mlp(ctx, work, saved);
    const Tensor d_mlp = drop_gradient(ctx, dy, mlp_site_, room);
    mlp_.backward(ctx, d_normed, d_mlp, saved.norm2.y, saved.mlp);
  }
  const Tensor d_middle = norm2_.backward_input(ctx, d_normed, dy, stash, saved.norm2);
  norm2_.backward_weight(ctx, saved.norm2);
  {
    Frame again(ctx.work);
    prepare_attention(ctx, work, again, saved);
    const Tensor d_attention = drop_gradient(ctx, d_middle, attention_site_, room);
    attention_.backward(ctx, d_normed, d_attention, saved.norm1.y, saved.attention);
  }
  const Tensor dx = norm1_.backward_input(ctx, d_normed, d_middle, stash, saved.norm1);
  norm1_.backward_weight(ctx, saved.norm1);
  return dx;
}

void Block::prepare_mlp(Context& ctx, const Room& room, Saved& saved) const {
  if (!recomputes()) return;
  norm2_.forward_again(ctx, room, saved.norm2);
  mlp_.activate_again(ctx, room, saved.mlp);
}

void Block::prepare_attention(Context& ctx, const Room& room, Frame& frame, Saved& saved) const {
  if (!recomputes()) return;
  norm1_.forward_again(ctx, room, saved.norm1);
  if (again_ == Again::kAttention) attention_.attend_again(ctx, room, frame, saved.attention);
}

void Block::drop(Context& ctx, const Tensor& y, const Tensor& x, std::uint64_t site) const {
  ctx.ops.run(Dropout{.y = y,
                      .x = x,
                      .sample_ids = ctx.micro.sample_ids,
                      .step_state = ctx.step_state,
                      .S = ctx.micro.S,
                      .first_row = first_row(ctx, rows_),
                      .p = dropout_,
                      .site = site});
}

Tensor Block::drop_gradient(Context& ctx, const Tensor& dy, std::uint64_t site,
                            const Tensor& room) const {
  if (!drops(ctx)) return dy;
  drop(ctx, room, dy, site);
  return room;
}

void Block::collect(std::vector<Param*>& out) {
  norm1_.collect(out);
  attention_.collect(out);
  norm2_.collect(out);
  mlp_.collect(out);
}

}  // namespace orthant
