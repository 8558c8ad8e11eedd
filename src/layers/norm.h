// Norm: LayerNorm or RMSNorm with the residual addition before it. Every tp rank holds all of it,
// and has its gradient from the rows that it has.
#pragma once

#include <vector>

#include "layers/block_config.h"
#include "layers/layer.h"

namespace orthant {

class Norm {
 public:
  struct Saved {
    Tensor sum;   // [R,C]  what was normalised; backward_input writes its result here
    Tensor y;     // [R,C]  memory of the caller's, for forward
    Tensor mean;  // [R] f32
    Tensor rstd;  // [R] f32
    Tensor dw,
        db;  // [C] f32  this micro-batch's parameter gradients, between the halves of backward
  };
  // `prefix`.weight and, for LayerNorm, `prefix`.bias are among the specs.
  Norm(const std::vector<ParamSpec>& specs, const std::string& prefix, NormKind kind,
       const BlockConfig& config, const Mesh& mesh);

  // saved.sum = in.x + in.pending, written to `sum`; in.x itself when nothing is pending.
  void forward(Context& ctx, const Flow& in, const Tensor& sum, Stash& stash, Saved& saved) const;
  // saved.y again, from saved.sum.
  void forward_again(Context& ctx, const Room& room, Saved& saved) const;
  // Gradient of the sum: of the norm, plus d_residual (may be absent). Lies in saved.sum.
  Tensor backward_input(Context& ctx, const Tensor& dy, const Tensor& d_residual, Stash& stash,
                        Saved& saved) const;
  void backward_weight(Context& ctx, const Saved& saved) const;
  void collect(std::vector<Param*>& out);

 private:
  Param w_;
  Param b_;
  NormKind kind_;
  double eps_;
};

}  // namespace orthant
