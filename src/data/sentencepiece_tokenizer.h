// SentencePiece models.
#pragma once

#include <memory>
#include <string>

#include "data/tokenizer.h"

namespace orthant {

// kOurs encodes with BpeModel where the model allows it, and gives the ids of the library.
enum class SentencePieceEncoder { kOurs, kLibrary };

std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const std::string& path,
                                                        SentencePieceEncoder encoder);

}  // namespace orthant
