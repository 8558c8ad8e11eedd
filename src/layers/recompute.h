// Recompute: a layer of which only the input is kept. Its backward runs the forward again in a
// stash that lives for that call, then both halves of the layer's backward (Chen et al.,
// arXiv:1604.06174).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "layers/layer.h"
#include "layers/rows.h"

namespace orthant {

class Recompute final : public Layer {
 public:
  // `inner` has id 0 and leaves the gradient of its input where that input lay. kSplit: each tp
  // rank keeps 1/tp of an input that all have, and they gather it in backward.
  Recompute(int id, std::unique_ptr<Layer> inner, Rows kept);

  void forward(Context& ctx, const Flow& in, Flow& out, Stash& stash) const override;
  Tensor backward_input(Context& ctx, const Tensor& dy, Stash& stash) const override;
  void backward_weight(Context& /*ctx*/, Stash& /*stash*/) const override {}
  bool joins_halves() const override { return true; }
  bool keeps_input() const override { return kept_ == Rows::kAll; }
  bool keeps_output() const override { return false; }
  void collect(std::vector<Param*>& out) override { inner_->collect(out); }

 private:
  struct Saved {
    Tensor x;  // [R,C], or [T/tp,C]
  };
  std::unique_ptr<Layer> inner_;
  Rows kept_;
};

}  // namespace orthant
