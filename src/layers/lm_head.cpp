#include "layers/lm_head.h"

namespace orthant {

LmHead::LmHead(int id, std::string name, const BlockConfig& config,
               const std::vector<ParamSpec>& specs, const ParamSpec& table, const Mesh& mesh)
    : Layer(id, std::move(name)),
      rows_(config.rows),
      norm_(specs, "final.norm", config.norm, config, mesh),
      table_(make_param(table, mesh.coord(Axis::kTp), mesh.size(Axis::kTp))) {}

void LmHead::forward(Context& ctx, const Flow& in, Flow& out, Stash& stash) const {
  auto& saved = stash.make<Saved>(id());
  const std::int64_t T = ctx.micro.T();
  out = {};
  const Tensor sum = in.pending.present() ? stash.alloc(in.x.shape, in.x.dtype) : Tensor{};
  saved.norm.y = stash.alloc(in.x.shape, in.x.dtype);
  norm_.forward(ctx, in, sum, stash, saved.norm);
  if (ctx.mode == Mode::kGenerate) return next_logits(ctx, stash, saved);
  saved.logits = stash.alloc({T, table_.local[0]}, in.x.dtype);
  saved.lse = stash.alloc({T}, DType::kF32);
  saved.loss = stash.alloc({T}, DType::kF32);
  {
    Frame frame(ctx.work);
    const Tensor normed = all_rows(ctx, rows_, saved.norm.y, frame);
    ctx.ops.run(LinearFwd{.y = saved.logits, .x = normed, .w = table_.value, .b = {}});
  }

  Communicator& tp = ctx.mesh.tp();
  Frame frame(ctx.work);
  const Tensor parts = frame.alloc({tp.size(), T, 3}, DType::kF32);
  const Tensor mine = parts.rows(tp.rank(), 1).as({T, 3});
  ctx.ops.run(SoftmaxPart{.part = mine,
                          .logits = saved.logits,
                          .labels = ctx.micro.labels,
                          .first_column = first_column(),
                          .valid = valid_columns()});
  tp.wait(tp.start_all_gather(parts, mine));
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

void LmHead::logits_backward(Context& ctx, const Saved& saved) const {
  ctx.ops.run(CrossEntropyBwd{.dlogits = saved.logits,
                              .logits = saved.logits,
                              .lse = saved.lse,
                              .labels = ctx.micro.labels,
                              .step_state = ctx.step_state,
                              .first_column = first_column(),
                              .valid = valid_columns()});
}

Token LmHead::sum_input_gradient(Context& ctx, const Tensor& d_normed, const Tensor& whole,
                                 const Saved& saved) const {
  return sum_rows_as_they_are_made(
      ctx, rows_, d_normed, whole, [&](std::int64_t first, std::int64_t count) {
        ctx.ops.run(LinearBwdInput{.dx = whole.rows(first, count),
                                   .dy = saved.logits.rows(first, count),
                                   .w = table_.value});
      });
}

void LmHead::table_backward(Context& ctx, const Saved& saved, const Tensor& normed) const {
  ctx.ops.run(LinearBwdWeight{.dw = table_.grad, .db = {}, .dy = saved.logits, .x = normed});
}

Tensor LmHead::backward_input(Context& ctx, const Tensor& /*dy*/, Stash& stash) const {
  auto& saved = stash.get<Saved>(id());
  logits_backward(ctx, saved);
  Frame frame(ctx.work);
  const Tensor d_normed = frame.alloc(saved.norm.y.shape, saved.norm.y.dtype);
  const Tensor whole = room_for_all(ctx, rows_, d_normed, frame);
  ctx.mesh.tp().wait(sum_input_gradient(ctx, d_normed, whole, saved));
  return norm_.backward_input(ctx, d_normed, {}, stash, saved.norm);
}

void LmHead::backward_weight(Context& ctx, Stash& stash) const {
  const auto& saved = stash.get<Saved>(id());
  {
    Frame frame(ctx.work);
    table_backward(ctx, saved, all_rows(ctx, rows_, saved.norm.y, frame));
  }
  norm_.backward_weight(ctx, saved.norm);
}

// The table's product runs beside the sum over tp.
Tensor LmHead::backward(Context& ctx, const Tensor& /*dy*/, Stash& stash) const {
  auto& saved = stash.get<Saved>(id());
  logits_backward(ctx, saved);
  Frame frame(ctx.work);
  const Tensor d_normed = frame.alloc(saved.norm.y.shape, saved.norm.y.dtype);
  const Gathering normed = start_all_rows(ctx, rows_, saved.norm.y, frame);
  const Tensor whole = room_for_all(ctx, rows_, d_normed, frame);
  const Token sum = sum_input_gradient(ctx, d_normed, whole, saved);
  ctx.mesh.tp().wait(normed.ready);
  table_backward(ctx, saved, normed.whole);
  ctx.mesh.tp().wait(sum);
  const Tensor dx = norm_.backward_input(ctx, d_normed, {}, stash, saved.norm);
  norm_.backward_weight(ctx, saved.norm);
  return dx;
}

void LmHead::collect(std::vector<Param*>& out) {
  norm_.collect(out);
  out.push_back(&table_);
}

}  // namespace orthant
