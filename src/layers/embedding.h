// Embedding: token table split by rows over tp, learned positions, dropout, an optional norm after
// it.
#pragma once

#include <optional>
#include <vector>

#include "layers/norm.h"

namespace orthant {

class Embedding final : public Layer {
 public:
  Embedding(int id, const std::string& name, const BlockConfig& config,
            const std::vector<ParamSpec>& specs, const Mesh& mesh);

  void forward(Context& ctx, const Flow& in, Flow& out, Stash& stash) const override;
  Tensor backward_input(Context& ctx, const Tensor& dy, Stash& stash) const override;
  void backward_weight(Context& ctx, Stash& stash) const override;
  bool keeps_output() const override { return norm_.has_value(); }
  void collect(std::vector<Param*>& out) override;

 private:
  struct Saved {
    Norm::Saved norm;
    Tensor dy;  // gradient of the sum of the tables' rows, between the halves of backward
  };
  bool drops(const Context& ctx) const { return ctx.mode == Mode::kTrain && dropout_ > 0; }
  void drop(Context& ctx, const Tensor& x) const;

  double dropout_;
  Rows rows_;
  std::uint64_t site_;
  Param tokens_;
  std::optional<Param> positions_;
  std::optional<Norm> norm_;
};

}  // namespace orthant
