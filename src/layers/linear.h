// Linear: a matrix that is whole, split by columns or split by rows over tp, with the collectives
// of tensor parallelism (Shoeybi et al., "Megatron-LM", arXiv:1909.08053).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layers/layer.h"
#include "layers/rows.h"

namespace orthant {

enum class Split : std::uint8_t {
  kColumn,  // outputs are split: the input has all rows, its gradient is summed over tp
  kRow,     // inputs are split: the output is a sum over tp; the bias is added once, by tp rank 0
};

class Linear {
 public:
  // Several weights that follow each other in memory are one matrix with `in` inputs on this rank.
  // `biases` may be empty.
  Linear(const std::vector<ParamSpec>& weights, const std::vector<ParamSpec>& biases,
         std::int64_t in, Split split, Rows rows, const Mesh& mesh);

  std::int64_t out_features() const { return out_; }  // on this rank

  // `Rows` are those of kColumn's x and dx and of kRow's dy; the other side has all.
  // kColumn is complete on return. kRow starts the sum over tp: wait for the token before reading
  // own_rows(y); the others' are then of no use. `gelu` is GELU of y, of kColumn; it may be absent.
  [[nodiscard]] Token forward(Context& ctx, const Tensor& y, const Tensor& x,
                              const Tensor& gelu = {}) const;
  // kColumn: the sum over tp is complete on return. kRow needs none.
  void backward_input(Context& ctx, const Tensor& dx, const Tensor& dy) const;
  void backward_weight(Context& ctx, const Tensor& dy, const Tensor& x) const;
  // Both: rows are gathered once, and each product runs beside a call of the other. Where kRow's x
  // is GELU of `gelu_x`, dx is the gradient of that.
  void backward(Context& ctx, const Tensor& dx, const Tensor& dy, const Tensor& x,
                const Tensor& gelu_x = {}) const;
  void collect(std::vector<Param*>& out);

 private:
  void spread_input_gradient(Context& ctx, const Tensor& dx, const Tensor& dy,
                             const Gathering& gathered, const Tensor& gelu_x) const;
  Token sum_input_gradient(Context& ctx, const Tensor& dx, const Tensor& whole,
                           const Tensor& dy) const;
  void add_weight_gradient(Context& ctx, const Tensor& dy, const Tensor& x) const;

  std::vector<Param> weights_;
  std::vector<Param> biases_;
  std::int64_t in_;
  std::int64_t out_;
  Split split_;
  Rows rows_;
};

}  // namespace orthant
