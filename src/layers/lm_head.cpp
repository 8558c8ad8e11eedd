#include "layers/lm_head.h"

namespace orthant {

LmHead::LmHead(int id, std::string name, const std::vector<ParamSpec>& specs,
               const ParamSpec& table, NormKind norm, double norm_eps, const Mesh& mesh)
    : Layer(id, std::move(name)),
      norm_(specs, "final.norm", norm, norm_eps, mesh),
      table_(make_param(table, mesh.coord(Axis::kTp), mesh.size(Axis::kTp))) {}

void LmHead::forward(Context& ctx, const Flow& in, Flow& out, Stash& stash) const {
  auto& saved = stash.make<Saved>(id());
  const std::int64_t T = in.x.shape[0];
  out = {};
  const Tensor sum = in.pending.present() ? stash.alloc(in.x.shape, in.x.dtype) : Tensor{};
  norm_.forward(ctx, in, sum, stash, saved.norm);
  if (ctx.mode == Mode::kGenerate) return next_logits(ctx, stash, saved);
  saved.logits = stash.alloc({T, table_.local[0]}, in.x.dtype);
  saved.lse = stash.alloc({T}, DType::kF32);
  saved.loss = stash.alloc({T}, DType::kF32);
  ctx.ops.run(LinearFwd{.y = saved.logits, .x = saved.norm.y, .w = table_.value, .b = {}});

  Communicator& tp = ctx.mesh.tp();
  Frame frame(ctx.work);
  const Tensor parts = frame.alloc({tp.size(), T, 3}, DType::kF32);
  const Tensor mine = parts.rows(tp.rank(), 1).as({T, 3});
  ctx.ops.run(SoftmaxPart{.part = mine,
                          .logits = saved.logits,
                          .labels = ctx.micro.labels,
                          .first_column = first_column(),
                          .valid = valid_columns()});
  tp.all_gather(parts, mine);
  ctx.ops.run(CrossEntropyFwd{.loss = saved.loss,
                              .lse = saved.lse,
                              .step_state = ctx.step_state,
                              .parts = parts,
                              .labels = ctx.micro.labels});
}

// Only the last row of a sequence says what comes next.
void LmHead::next_logits(Context& ctx, Stash& stash, Saved& saved) const {
  const std::int64_t S = ctx.micro.S;
  saved.logits = stash.alloc({ctx.micro.B, table_.local[0]}, saved.norm.y.dtype);
  for (std::int64_t b = 0; b < ctx.micro.B; ++b) {
    ctx.ops.run(LinearFwd{.y = saved.logits.rows(b, 1),
                          .x = saved.norm.y.rows(b * S + S - 1, 1),
                          .w = table_.value,
                          .b = {}});
  }
}

Tensor LmHead::backward_input(Context& ctx, const Tensor& /*dy*/, Stash& stash) const {
  auto& saved = stash.get<Saved>(id());
  ctx.ops.run(CrossEntropyBwd{.dlogits = saved.logits,
                              .logits = saved.logits,
                              .lse = saved.lse,
                              .labels = ctx.micro.labels,
                              .step_state = ctx.step_state,
                              .first_column = first_column(),
                              .valid = valid_columns()});
  Frame frame(ctx.work);
  const Tensor d_normed = frame.alloc(saved.norm.y.shape, saved.norm.y.dtype);
  ctx.ops.run(LinearBwdInput{.dx = d_normed, .dy = saved.logits, .w = table_.value});
  ctx.mesh.tp().all_reduce(d_normed, Reduce::kSum);
  return norm_.backward_input(ctx, d_normed, {}, stash, saved.norm);
}

void LmHead::backward_weight(Context& ctx, Stash& stash) const {
  const auto& saved = stash.get<Saved>(id());
  ctx.ops.run(LinearBwdWeight{.dw = table_.grad, .db = {}, .dy = saved.logits, .x = saved.norm.y});
  norm_.backward_weight(ctx, saved.norm);
}

void LmHead::collect(std::vector<Param*>& out) {
  norm_.collect(out);
  out.push_back(&table_);
}

}  // namespace orthant
