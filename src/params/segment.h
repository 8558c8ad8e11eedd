// Segment: a run of one shard whose elements the optimizer updates with the same settings, padding
// (zeros) included.
#pragma once

#include <cstdint>

#include "mem/tensor.h"
#include "ops/update.h"

namespace orthant {

struct Segment {
  Tensor master;  // f32; the value itself when the compute type is f32; i16: what the value lacks
  Tensor m;       // f32 or bf16, as v
  Tensor v;
  Tensor value;  // the compute type; absent when that is f32
  Tensor grad;   // f32 or bf16
  bool decays;
  bool counted;     // in the global norm on this rank: each logical element once in norm_group()
  int block_start;  // of its first element within its block of the norm
  ElementPlaces places;  // in the whole tensor of that name, for bf16 moments
  std::uint64_t stream;
  bool on_host;  // master, m and v lie there
};

}  // namespace orthant
