// Mlp: up projection split by columns, GELU or SwiGLU, down projection split by rows.
#pragma once

#include <vector>

#include "layers/block_config.h"
#include "layers/linear.h"

namespace orthant {

class Mlp {
 public:
  struct Saved {
    Tensor up;   // [T,F/tp] or [T,2F/tp]  backward_input writes its gradient here
    Tensor act;  // [T,F/tp]
  };
  Mlp(const BlockConfig& config, const std::vector<ParamSpec>& specs, const Mesh& mesh);

  // own_rows(y) = the down projection's output, complete when the token is. y is [T,C], x own rows.
  // Without a y only the stash is filled.
  [[nodiscard]] Token forward(Context& ctx, const Tensor& y, const Tensor& x, Stash& stash,
                              Saved& saved) const;
  // saved.act again, from saved.up.
  void activate_again(Context& ctx, const Room& room, Saved& saved) const;
  void backward_input(Context& ctx, const Tensor& dx, const Tensor& dy, Saved& saved) const;
  void backward_weight(Context& ctx, const Tensor& dy, const Tensor& x, const Saved& saved) const;
  void backward(Context& ctx, const Tensor& dx, const Tensor& dy, const Tensor& x,
                Saved& saved) const;
  void collect(std::vector<Param*>& out);

 private:
  void activate(Context& ctx, const Saved& saved) const;
  void backward_through_gelu(Context& ctx, const Tensor& dx, const Tensor& dy, const Tensor& x,
                             const Saved& saved) const;
  void activate_backward(Context& ctx, const Tensor& d_act, const Saved& saved) const;

  Activation activation_;
  Again again_;
  std::int64_t width_;  // F / tp
  Linear up_;
  Linear down_;
};

}  // namespace orthant
