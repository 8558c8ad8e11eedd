// The parts of a tokenizer.json around its model, each read or refused by the field's name.
#pragma once

#include <string>
#include <vector>

#include "data/bpe_model.h"
#include "data/json_field.h"
#include "data/normalizer.h"
#include "data/pre_tokenizer.h"
#include "data/token_texts.h"
#include "data/tokenizer_file.h"

namespace orthant {

std::vector<NormalizerStep> read_normalizer(const Field& field);

struct PreTokenizerSteps {
  std::vector<PieceStep> steps;
  BpeAlphabet alphabet = BpeAlphabet::kCodePoints;  // kBytes when ByteLevel is the last
};
PreTokenizerSteps read_pre_tokenizer(const Field& field);

// What it puts around a single text.
TemplateIds read_post_processor(const Field& field);

// Applies the steps on single tokens to `texts`.
void read_decoder(const Field& field, TokenTexts& texts, DecoderSpec& decoder);

}  // namespace orthant
