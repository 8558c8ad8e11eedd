// tokenizer.json: the parts of it that we can do; the rest is refused by the field's name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/added_tokens.h"
#include "data/bpe_model.h"
#include "data/normalizer.h"
#include "data/pre_tokenizer.h"
#include "data/tokenizer.h"

namespace orthant {

// How token texts become text again. The steps on single tokens have been applied to `texts`.
struct DecoderSpec {
  std::vector<std::string> texts;        // by id; bytes
  std::vector<std::string> first_texts;  // by id, when the first token is decoded otherwise
  std::vector<bool> is_known;            // by id
  bool joins_with_space = false;
  char strip = ' ';  // what is taken from the ends of the whole, at most so many times
  int strip_start = 0;
  int strip_stop = 0;
};

struct TokenizerFile {
  std::string path;
  std::vector<AddedToken> added;
  std::vector<NormalizerStep> normalizer;
  std::vector<PieceStep> pre_tokenizer;
  BpeSpec model;
  DecoderSpec decoder;
  TemplateIds around_text;
  std::int64_t vocab_size = 0;  // the largest id + 1
  std::uint32_t checksum = 0;   // CRC-32C of the file
  std::optional<std::int32_t> end_of_document;
};

TokenizerFile read_tokenizer_file(const std::string& path);

}  // namespace orthant
