// SentencePiece's BPE by our own model, a hundred times faster on long texts; its library is the
// reference in the tests.
#pragma once

#include <optional>
#include <string_view>

#include "data/bpe_model.h"

namespace orthant {

struct SentencePieceBpe {
  BpeSpec model;
  bool adds_space = false;  // in front of every text that is not empty
};

// The model as ours; nothing when it has what ours cannot do (another algorithm, normalizing,
// user-defined pieces): the library does it then. `serialized` must have been read by the library.
std::optional<SentencePieceBpe> read_sentencepiece_bpe(std::string_view serialized);

}  // namespace orthant
