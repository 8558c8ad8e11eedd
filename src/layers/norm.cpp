#include "layers/norm.h"

#include "base/check.h"

namespace orthant {

Norm::Norm(const std::vector<ParamSpec>& specs, const std::string& prefix, NormKind kind,
           const BlockConfig& config, const Mesh& mesh)
    : kind_(kind),
      eps_(config.norm_eps) {
  const auto make = [&](const ParamSpec& spec) {
    Param param = make_param(spec, mesh.coord(Axis::kTp), mesh.size(Axis::kTp));
    param.is_partial = config.rows == Rows::kSplit;
    return param;
  };
  const ParamSpec* w = find_spec(specs, prefix + ".weight");
  const ParamSpec* b = find_spec(specs, prefix + ".bias");
  ORTHANT_CHECK(w != nullptr && (b != nullptr) == (kind == NormKind::kLayerNorm),
                "{} has the wrong parameters", prefix);
  w_ = make(*w);
  if (b != nullptr) b_ = make(*b);
}

void Norm::forward(Context& ctx, const Flow& in, const Tensor& sum, Stash& stash,
                   Saved& saved) const {
  const bool adds = in.pending.present();
  const std::int64_t R = in.x.shape[0];
  saved.sum = adds ? sum : in.x;
  if (kind_ == NormKind::kLayerNorm) saved.mean = stash.alloc({R}, DType::kF32);
  saved.rstd = stash.alloc({R}, DType::kF32);
  ctx.mesh.tp().wait(in.ready);
  ctx.ops.run(NormFwd{.y = saved.y,
                      .sum = adds ? sum : Tensor{},
                      .mean = saved.mean,
                      .rstd = saved.rstd,
                      .x = in.x,
                      .addend = in.pending,
                      .w = w_.value,
                      .b = b_.value,
                      .kind = kind_,
                      .eps = eps_});
}

void Norm::forward_again(Context& ctx, const Room& room, Saved& saved) const {
  saved.y = room.like(saved.y);
  ctx.ops.run(NormFwd{.y = saved.y,
                      .sum = {},
                      .mean = saved.mean,
                      .rstd = saved.rstd,
                      .x = saved.sum,
                      .addend = {},
                      .w = w_.value,
                      .b = b_.value,
                      .kind = kind_,
                      .eps = eps_});
}

Tensor Norm::backward_input(Context& ctx, const Tensor& dy, const Tensor& d_residual, Stash& stash,
                            Saved& saved) const {
  saved.dw = stash.alloc_late(w_.local, DType::kF32);
  if (kind_ == NormKind::kLayerNorm) saved.db = stash.alloc_late(b_.local, DType::kF32);
  ctx.ops.run(NormBwd{.dx = saved.sum,
                      .dw = saved.dw,
                      .db = saved.db,
                      .dy = dy,
                      .x = saved.sum,
                      .w = w_.value,
                      .mean = saved.mean,
                      .rstd = saved.rstd,
                      .d_residual = d_residual,
                      .kind = kind_});
  return saved.sum;
}

void Norm::backward_weight(Context& ctx, const Saved& saved) const {
  ctx.ops.run(Accumulate{.y = w_.grad, .x = saved.dw});
  if (kind_ == NormKind::kLayerNorm) ctx.ops.run(Accumulate{.y = b_.grad, .x = saved.db});
}

void Norm::collect(std::vector<Param*>& out) {
  out.push_back(&w_);
  if (kind_ == NormKind::kLayerNorm) out.push_back(&b_);
}

}  // namespace orthant
