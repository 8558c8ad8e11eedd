#include "layers/attention.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"

namespace orthant {
namespace {

// Absent: a sequence is one document.
Tensor document_positions(const Context& ctx) {
  return ctx.micro.by_document ? ctx.micro.positions : Tensor{};
}

}  // namespace

Attention::Attention(const BlockConfig& config, const std::vector<ParamSpec>& specs,
                     const std::string& prefix, int block, const Mesh& mesh)
    : config_(config),
      heads_(config.H / mesh.size(Axis::kTp)),
      kv_heads_(std::max<std::int64_t>(1, config.G / mesh.size(Axis::kTp))),
      first_head_(heads_ * mesh.coord(Axis::kTp)),
      dropout_site_(stream_of(prefix + ".dropout")),
      block_(block),
      qkv_(pick_specs(specs, {".attn.q.weight", ".attn.kv.weight"}),
           pick_specs(specs, {".attn.q.bias", ".attn.kv.bias"}), config.C, Split::kColumn,
           config.rows, mesh),
      proj_(pick_specs(specs, {".attn.proj.weight"}), pick_specs(specs, {".attn.proj.bias"}),
            heads_ * config.D, Split::kRow, config.rows, mesh) {}

AttentionShape Attention::shape_of(const Context& ctx) const {
  return {.B = ctx.micro.B,
          .S = ctx.micro.S,
          .H = heads_,
          .G = kv_heads_,
          .D = config_.D,
          .scale = 1.0 / std::sqrt(static_cast<double>(config_.D)),
          .dropout = ctx.mode == Mode::kTrain ? config_.dropout : 0.0,
          .site = dropout_site_,
          .first_head = first_head_,
          .num_all_heads = config_.H};
}

void Attention::rotate(Context& ctx, const Tensor& qkv, Rotate direction) const {
  if (config_.position != Position::kRotary) return;
  ctx.ops.run(Rotary{.qkv = qkv,
                     .positions = ctx.micro.positions,
                     .inv_freq = ctx.constants.inv_freq,
                     .H = heads_,
                     .G = kv_heads_,
                     .direction = direction});
}

Token Attention::forward(Context& ctx, const Tensor& y, const Tensor& x, Stash& stash,
                         Saved& saved) const {
  const std::int64_t T = ctx.micro.T();
  saved.qkv = stash.alloc({T, qkv_.out_features()}, x.dtype);
  Frame frame(ctx.work);
  const bool keeps = config_.again != Again::kAttention;
  const auto alloc = [&](const Shape& shape, DType type) {
    return keeps ? stash.alloc(shape, type) : frame.alloc(shape, type);
  };
  saved.o = alloc({T, heads_ * config_.D}, x.dtype);
  ctx.mesh.tp().wait(qkv_.forward(ctx, saved.qkv, x));
  rotate(ctx, saved.qkv, Rotate::kForward);
  if (ctx.cache != nullptr) {
    const KvCache::Block& cache = ctx.cache->blocks[static_cast<std::size_t>(block_)];
    ctx.ops.run(AttentionCached{.o = saved.o,
                                .k_cache = cache.k,
                                .v_cache = cache.v,
                                .qkv = saved.qkv,
                                .slopes = ctx.constants.slopes,
                                .shape = shape_of(ctx),
                                .start = ctx.cache->length});
  } else {
    saved.lse = alloc({ctx.micro.B, heads_, ctx.micro.S}, DType::kF32);
    attend(ctx, saved);
  }
  return proj_.forward(ctx, y, saved.o);
}

void Attention::attend(Context& ctx, const Saved& saved) const {
  ctx.ops.run(AttentionFwd{.o = saved.o,
                           .lse = saved.lse,
                           .qkv = saved.qkv,
                           .slopes = ctx.constants.slopes,
                           .positions = document_positions(ctx),
                           .sample_ids = ctx.micro.sample_ids,
                           .step_state = ctx.step_state,
                           .shape = shape_of(ctx)});
}

void Attention::attend_again(Context& ctx, const Room& room, Frame& frame, Saved& saved) const {
  saved.o = room.like(saved.o);
  saved.lse = frame.alloc(saved.lse.shape, saved.lse.dtype);
  attend(ctx, saved);
}

void Attention::attend_backward(Context& ctx, const Tensor& d_o, const Saved& saved) const {
  ctx.ops.run(AttentionBwd{.dqkv = saved.qkv,
                           .do_ = d_o,
                           .o = saved.o,
                           .lse = saved.lse,
                           .qkv = saved.qkv,
                           .slopes = ctx.constants.slopes,
                           .positions = document_positions(ctx),
                           .sample_ids = ctx.micro.sample_ids,
                           .step_state = ctx.step_state,
                           .shape = shape_of(ctx)});
  rotate(ctx, saved.qkv, Rotate::kBackward);
}

void Attention::backward_input(Context& ctx, const Tensor& dx, const Tensor& dy,
                               Saved& saved) const {
  {
    Frame frame(ctx.work);
    const Tensor d_o = frame.alloc(saved.o.shape, saved.o.dtype);
    proj_.backward_input(ctx, d_o, dy);
    attend_backward(ctx, d_o, saved);
  }
  qkv_.backward_input(ctx, dx, saved.qkv);
}

void Attention::backward(Context& ctx, const Tensor& dx, const Tensor& dy, const Tensor& x,
                         Saved& saved) const {
  {
    Frame frame(ctx.work);
    const Tensor d_o = frame.alloc(saved.o.shape, saved.o.dtype);
    proj_.backward(ctx, d_o, dy, saved.o);
    attend_backward(ctx, d_o, saved);
  }
  qkv_.backward(ctx, dx, saved.qkv, x);
}

void Attention::backward_weight(Context& ctx, const Tensor& dy, const Tensor& x,
                                const Saved& saved) const {
  proj_.backward_weight(ctx, dy, saved.o);
  qkv_.backward_weight(ctx, saved.qkv, x);
}

void Attention::collect(std::vector<Param*>& out) {
  qkv_.collect(out);
  proj_.collect(out);
}

}  // namespace orthant
