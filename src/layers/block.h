// Block: one transformer block: norm, attention, norm, feed-forward, with the residual additions
// inside the norms.
#pragma once

#include <vector>

#include "layers/attention.h"
#include "layers/mlp.h"
#include "layers/norm.h"

namespace orthant {

class Block final : public Layer {
 public:
  // `specs` are the block's parameters in the order of their unit; `block` numbers the blocks of
  // this stage.
  Block(int id, const std::string& name, const BlockConfig& config,
        const std::vector<ParamSpec>& specs, int block, const Mesh& mesh);

  void forward(Context& ctx, const Flow& in, Flow& out, Stash& stash) const override;
  Tensor backward_input(Context& ctx, const Tensor& dy, Stash& stash) const override;
  void backward_weight(Context& ctx, Stash& stash) const override;
  Tensor backward(Context& ctx, const Tensor& dy, Stash& stash) const override;
  void collect(std::vector<Param*>& out) override;

 private:
  struct Saved {
    Norm::Saved norm1;
    Attention::Saved attention;
    Norm::Saved norm2;
    Mlp::Saved mlp;
    Tensor d_attention;  // gradient of the attention's output, and
    Tensor d_mlp;        // of the feed-forward's, between the halves of backward
  };
  // y = dropout(y) on the residual branch `site`.
  void drop(Context& ctx, const Tensor& y, const Tensor& x, std::uint64_t site) const;
  // The gradient of the branch behind dropout `site`, given that of the residual.
  Tensor drop_gradient(Context& ctx, const Tensor& dy, std::uint64_t site,
                       const Tensor& room) const;
  // What the feed-forward's backward reads, and the attention's, where it was not kept.
  void prepare_mlp(Context& ctx, const Room& room, Saved& saved) const;
  void prepare_attention(Context& ctx, const Room& room, Frame& frame, Saved& saved) const;
  bool recomputes() const { return again_ != Again::kNothing; }
  bool drops(const Context& ctx) const { return ctx.mode == Mode::kTrain && dropout_ > 0; }

  double dropout_;
  Rows rows_;
  Again again_;
  std::uint64_t attention_site_;
  std::uint64_t mlp_site_;
  Norm norm1_;
  Attention attention_;
  Norm norm2_;
  Mlp mlp_;
};

}  // namespace orthant
