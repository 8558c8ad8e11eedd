// SentencePiece models, by its own library.
#pragma once

#include <memory>
#include <string>

#include "data/tokenizer.h"

namespace orthant {

std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const std::string& path);

}  // namespace orthant
