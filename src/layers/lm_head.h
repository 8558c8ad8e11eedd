// LmHead: final norm, logits of this rank's part of the vocabulary, cross-entropy without gathering
// them.
#pragma once

#include <vector>

#include "layers/norm.h"

namespace orthant {

class LmHead final : public Layer {
 public:
  struct Saved {
    Norm::Saved norm;
    Tensor logits;  // [T,V/tp]  backward_input writes their gradient here; kGenerate: [B,V/tp]
    Tensor lse;     // [T] f32   absent in kGenerate, as the next
    Tensor loss;    // [T] f32   nats per token
  };
  // `table` is the spec of the head's weight: its own, or the token embedding's when they are tied.
  LmHead(int id, std::string name, const BlockConfig& config, const std::vector<ParamSpec>& specs,
         const ParamSpec& table, const Mesh& mesh);

  void forward(Context& ctx, const Flow& in, Flow& out, Stash& stash) const override;
  Tensor backward_input(Context& ctx, const Tensor& dy, Stash& stash) const override;
  void backward_weight(Context& ctx, Stash& stash) const override;
  Tensor backward(Context& ctx, const Tensor& dy, Stash& stash) const override;
  void collect(std::vector<Param*>& out) override;

  const Saved& saved(Stash& stash) const { return stash.get<Saved>(id()); }
  std::int64_t first_column() const { return table_.box.begin[0]; }
  std::int64_t valid_columns() const { return table_.box.extent[0]; }

 private:
  void logits_backward(Context& ctx, const Saved& saved) const;
  Token sum_input_gradient(Context& ctx, const Tensor& d_normed, const Tensor& whole,
                           const Saved& saved) const;
  void table_backward(Context& ctx, const Saved& saved, const Tensor& normed) const;
  void next_logits(Context& ctx, Stash& stash, Saved& saved) const;

  Rows rows_;
  Norm norm_;
  Param table_;
};

}  // namespace orthant
