// BlockConfig: the choices that a transformer block has.
#pragma once

#include <cstdint>

#include "ops/norm.h"

namespace orthant {

enum class Activation : std::uint8_t { kGelu, kSwiglu };
enum class Position : std::uint8_t { kLearned, kAlibi, kRotary };

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
};

}  // namespace orthant
