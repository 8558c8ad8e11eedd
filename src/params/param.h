// Param: one named parameter of the model as it lies on this rank.
#pragma once

#include <cstdint>
#include <string>

#include "dist/piece.h"
#include "mem/tensor.h"

namespace orthant {

// The initial value of a parameter, by global element index: it does not depend on the layout.
struct Init {
  enum class Kind : std::uint8_t { kZeros, kOnes, kNormal } kind = Kind::kZeros;
  double std = 0;  // kNormal: mean 0
};

struct ParamSpec {
  std::string name;        // canonical: "h.3.mlp.down.weight"
  Shape global;            // logical, never padded
  int split_dim = -1;      // tensor-parallel dimension; -1: every tp rank holds all
  bool is_padded = false;  // a vocabulary: parts are equal and the last ones may reach past the end
  bool decays = false;     // weight decay applies
  bool follows =
      false;  // lies right behind the parameter before it in its unit, so that both are one matrix
  bool repeats = false;  // key-value heads: where tp is a multiple of split_dim's extent,
                         // neighbouring tp ranks hold the same part
  Init init;
};

struct Param {
  ParamSpec spec;
  Shape local;              // this rank's part, padding included
  Box box;                  // what of the global tensor it holds, padding left out
  int copies = 1;           // tp ranks that hold this same part: mesh.holders(copies)
  bool is_partial = false;  // the copies' gradients are parts of a sum: ParamStore adds them
  Tensor value;             // [local] compute type, valid between use() and release() of its unit
  Tensor grad;              // [local] f32, valid between open_grads() and close_grads()
};

// What tensor-parallel rank `tp_rank` of `tp` holds. A user error names the parameter when the
// split dimension does not divide.
Param make_param(ParamSpec spec, int tp_rank, int tp);

// Rows of one part of a padded vocabulary: equal parts, a multiple of 8 each.
std::int64_t vocab_part(std::int64_t vocab, int num_parts);

}  // namespace orthant
