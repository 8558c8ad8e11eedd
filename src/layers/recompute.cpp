#include "layers/recompute.h"

#include <utility>

#include "base/check.h"

namespace orthant {

Recompute::Recompute(int id, std::unique_ptr<Layer> inner, Rows kept)
    : Layer(id, inner->name()),
      inner_(std::move(inner)),
      kept_(kept) {}

void Recompute::forward(Context& ctx, const Flow& in, Flow& out, Stash& stash) const {
  auto& saved = stash.make<Saved>(id());
  Tensor x = in.x;
  if (in.pending.present()) {
    x = stash.alloc(in.x.shape, in.x.dtype);
    complete(ctx, x, in);
  }
  saved.x = x;
  if (kept_ == Rows::kSplit) {
    const Tensor own = own_rows(ctx, kept_, x);
    saved.x = stash.alloc(own.shape, own.dtype);
    ctx.ops.run(Copy{.y = saved.x, .x = own});
  }
  const Frame once(ctx.again->arena());
  Flow last{.x = ctx.again->alloc(x.shape, x.dtype), .pending = out.pending, .ready = {}};
  inner_->forward(ctx, {.x = x, .pending = {}, .ready = {}}, last, *ctx.again);
  complete(ctx, out.x, last);
  ctx.again->clear();
  out.pending = {};
}

Tensor Recompute::backward_input(Context& ctx, const Tensor& dy, Stash& stash) const {
  const auto& saved = stash.get<Saved>(id());
  Tensor x = saved.x;
  if (kept_ == Rows::kSplit) {
    x = ctx.input;
    Communicator& tp = ctx.mesh.tp();
    tp.wait(tp.start_all_gather(x, saved.x));
  }
  const Frame once(ctx.again->arena());
  Flow unused{.x = ctx.again->alloc(x.shape, x.dtype), .pending = {}, .ready = {}};
  inner_->forward(ctx, {.x = x, .pending = {}, .ready = {}}, unused, *ctx.again);
  const Tensor dx = inner_->backward(ctx, dy, *ctx.again);
  ctx.again->clear();
  ORTHANT_CHECK(dx.data == x.data, "{}: its gradient does not lie over its input", name());
  return dx;
}

}  // namespace orthant
