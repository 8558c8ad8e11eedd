// Attention: query, key and value projections split by heads, causal attention, output projection.
#pragma once

#include <vector>

#include "layers/block_config.h"
#include "layers/linear.h"

namespace orthant {

class Attention {
 public:
  struct Saved {
    Tensor qkv;  // [T,(H+2G)*D/tp]  backward_input writes its gradient here
    Tensor o;    // [T,H*D/tp]
    Tensor lse;  // [B,H/tp,S] f32
  };
  // `block` numbers the blocks of this stage, for the key-value cache.
  Attention(const BlockConfig& config, const std::vector<ParamSpec>& specs,
            const std::string& prefix, int block, const Mesh& mesh);

  // own_rows(y) = the projection's output, complete when the token is. y is [T,C], x own rows.
  [[nodiscard]] Token forward(Context& ctx, const Tensor& y, const Tensor& x, Stash& stash,
                              Saved& saved) const;
  // saved.o again, from saved.qkv, and saved.lse, which only the input half reads, in the frame.
  void attend_again(Context& ctx, const Room& room, Frame& frame, Saved& saved) const;
  // dx is the caller's.
  void backward_input(Context& ctx, const Tensor& dx, const Tensor& dy, Saved& saved) const;
  void backward_weight(Context& ctx, const Tensor& dy, const Tensor& x, const Saved& saved) const;
  void backward(Context& ctx, const Tensor& dx, const Tensor& dy, const Tensor& x,
                Saved& saved) const;
  void collect(std::vector<Param*>& out);

 private:
  AttentionShape shape_of(const Context& ctx) const;
  void attend(Context& ctx, const Saved& saved) const;
  void attend_backward(Context& ctx, const Tensor& d_o, const Saved& saved) const;
  void rotate(Context& ctx, const Tensor& qkv, Rotate direction) const;

  BlockConfig config_;
  std::int64_t heads_;     // query heads on this rank
  std::int64_t kv_heads_;  // key-value heads on this rank
  std::int64_t first_head_;
  std::uint64_t dropout_site_;
  int block_;
  Linear qkv_;
  Linear proj_;
};

}  // namespace orthant
