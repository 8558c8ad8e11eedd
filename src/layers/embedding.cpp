#include "layers/embedding.h"

#include "base/random.h"

namespace orthant {

Embedding::Embedding(int id, const std::string& name, const BlockConfig& config,
                     const std::vector<ParamSpec>& specs, const Mesh& mesh)
    : Layer(id, name),
      dropout_(config.dropout),
      rows_(config.rows),
      site_(stream_of(name + ".dropout")) {
  const int tp_rank = mesh.coord(Axis::kTp);
  const int tp = mesh.size(Axis::kTp);
  tokens_ = make_param(*find_spec(specs, "embed.tokens.weight"), tp_rank, tp);
  const ParamSpec* positions = find_spec(specs, "embed.positions.weight");
  if (positions != nullptr) {
    positions_ = make_param(*positions, tp_rank, tp);
    positions_->is_partial = rows_ == Rows::kSplit;
  }
  if (find_spec(specs, "embed.norm.weight") != nullptr) {
    norm_.emplace(specs, "embed.norm", NormKind::kLayerNorm, config, mesh);
  }
}

void Embedding::drop(Context& ctx, const Tensor& x) const {
  ctx.ops.run(Dropout{.y = x,
                      .x = x,
                      .sample_ids = ctx.micro.sample_ids,
                      .step_state = ctx.step_state,
                      .S = ctx.micro.S,
                      .first_row = first_row(ctx, rows_),
                      .p = dropout_,
                      .site = site_});
}

void Embedding::forward(Context& ctx, const Flow& /*in*/, Flow& out, Stash& stash) const {
  auto& saved = stash.make<Saved>(id());
  out.pending = {};
  const Tensor sum = out.x;
  {
    Frame frame(ctx.work);
    const Tensor whole = room_for_all(ctx, rows_, sum, frame);
    ctx.ops.run(EmbeddingFwd{.y = whole,
                             .ids = ctx.micro.tokens,
                             .table = tokens_.value,
                             .first_row = tokens_.box.begin[0],
                             .write = Write::kSet});
    ctx.mesh.tp().wait(start_sum_over_tp(ctx, rows_, sum, whole));
  }
  if (positions_) {
    ctx.ops.run(EmbeddingFwd{.y = sum,
                             .ids = own_rows(ctx, rows_, ctx.micro.positions),
                             .table = positions_->value,
                             .first_row = 0,
                             .write = Write::kAdd});
  }
  if (norm_) {
    saved.norm.y = stash.alloc(sum.shape, sum.dtype);
    norm_->forward(ctx, Flow{.x = sum, .pending = {}, .ready = {}}, {}, stash, saved.norm);
    out.x = saved.norm.y;
  }
  if (drops(ctx)) drop(ctx, out.x);
}

Tensor Embedding::backward_input(Context& ctx, const Tensor& dy, Stash& stash) const {
  auto& saved = stash.get<Saved>(id());
  if (drops(ctx)) drop(ctx, dy);
  saved.dy = norm_ ? norm_->backward_input(ctx, dy, {}, stash, saved.norm) : dy;
  return {};
}

void Embedding::backward_weight(Context& ctx, Stash& stash) const {
  const auto& saved = stash.get<Saved>(id());
  {
    Frame frame(ctx.work);
    ctx.ops.run(EmbeddingBwd{.dtable = tokens_.grad,
                             .dy = all_rows(ctx, rows_, saved.dy, frame),
                             .ids = ctx.micro.tokens,
                             .first_row = tokens_.box.begin[0]});
  }
  if (positions_) {
    ctx.ops.run(EmbeddingBwd{.dtable = positions_->grad,
                             .dy = saved.dy,
                             .ids = own_rows(ctx, rows_, ctx.micro.positions),
                             .first_row = 0});
  }
  if (norm_) norm_->backward_weight(ctx, saved.norm);
}

void Embedding::collect(std::vector<Param*>& out) {
  out.push_back(&tokens_);
  if (positions_) out.push_back(&*positions_);
  if (norm_) norm_->collect(out);
}

}  // namespace orthant
