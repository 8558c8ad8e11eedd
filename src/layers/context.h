// Context: everything a layer may touch besides its arguments. There are no globals.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "dist/mesh.h"
#include "mem/arena.h"
#include "ops/ops.h"

namespace orthant {

// One micro-batch as every stage has it: T = B*S tokens.
struct MicroBatch {
  std::int64_t B = 0;
  std::int64_t S = 0;
  Tensor tokens;             // [T] i32
  Tensor labels;             // [T] i32   below 0: masked
  Tensor positions;          // [T] i32   within the document, where documents are told apart
  Tensor sample_ids;         // [B] i64   global sample position, for dropout
  bool by_document = false;  // attention ends where documents do: `positions` say where
  std::int64_t T() const { return B * S; }
};

// Tables that no training changes; absent when the model has none.
struct Constants {
  Tensor inv_freq;  // [D/2] f32   rotary frequencies
  Tensor slopes;    // [H/tp] f32  ALiBi slopes of this rank's heads
};

// Keys and values of the tokens so far, one pair a block of this stage.
struct KvCache {
  struct Block {
    Tensor k;  // [B,M,G/tp,D]
    Tensor v;  // [B,M,G/tp,D]
  };
  std::span<const Block> blocks;
  std::int64_t length = 0;  // tokens in the cache before this forward
};

class Stash;

enum class Mode : std::uint8_t { kTrain, kEvaluate, kGenerate };

struct Context {
  Ops& ops;
  const Mesh& mesh;
  Arena& work;
  const Constants& constants;
  const Tensor& step_state;  // StepState on the device
  Mode mode;
  MicroBatch micro;
  const KvCache* cache = nullptr;  // kGenerate only
  Stash* again = nullptr;          // for forwards that are run again, empty between layers
  Tensor input = {};               // [T,C]  backward: for the input of a layer that keeps none
  // Where `micro` is half a micro-batch: lets the other half go on in the midst of work.
  const std::function<void()>* give_midway = nullptr;
};

}  // namespace orthant
