// How often each piece of the input files comes up, for a tokenizer to be trained.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/bpe_trainer.h"

namespace orthant {

struct PieceSource {
  std::vector<std::string> inputs;  // as data pack takes them
  std::string json_key = "text";
  std::string_view pattern;  // kGpt2Pattern, kLlama3Pattern or kQwen2Pattern
  int num_threads = 1;
};

// Bad lines are user errors. Memory grows with the number of different pieces.
PieceCounts count_pieces(const PieceSource& source);

}  // namespace orthant
