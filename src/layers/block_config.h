// BlockConfig: the choices that a transformer block has; the layers around it follow the same.
#pragma once

#include <cstdint>

#include "layers/rows.h"
#include "ops/norm.h"

namespace orthant {

enum class Activation : std::uint8_t { kGelu, kSwiglu };
enum class Position : std::uint8_t { kLearned, kAlibi, kRotary };

// What a block's backward computes again rather than finding it in the stash.
enum class Again : std::uint8_t {
  kNothing,
  kCheap,      // the outputs of norms and activations
  kAttention,  // these, and attention's output
};

struct BlockConfig {
  std::int64_t C;  // width
  std::int64_t H;  // query heads of the whole model
  std::int64_t G;  // key-value heads of the whole model
  std::int64_t D;  // head width
  std::int64_t F;  // feed-forward width
  NormKind norm;
  double norm_eps;
  Position position;
  Activation activation;
  double dropout;
  Rows rows;  // of norms, dropout and residuals on this rank
  Again again = Again::kNothing;
};

}  // namespace orthant
