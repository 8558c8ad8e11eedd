// Learns a byte-level BPE vocabulary from counts of pieces, as Hugging Face's BpeTrainer does it:
// the most frequent pair of neighbours becomes a token, and of equals the one of the lower ids.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace orthant {

struct TrainedBpe {
  std::vector<std::string> tokens;                            // by id, in GPT-2's byte alphabet
  std::vector<std::pair<std::int32_t, std::int32_t>> merges;  // ids, by rank
};

using PieceCounts = std::unordered_map<std::string, std::int64_t>;

struct BpeTraining {
  std::int64_t vocab_size = 0;              // special tokens and the 256 bytes included
  std::int64_t min_count = 2;               // a pair that is rarer becomes no token
  std::vector<std::string> special_tokens;  // the first ids
};

// The result depends on the counts alone. Fewer tokens than asked where the pieces have no more
// pairs.
TrainedBpe train_bpe(const PieceCounts& pieces, const BpeTraining& training);

// A tokenizer.json with it. `pattern` cuts texts to pieces.
std::string tokenizer_json(const TrainedBpe& trained, const BpeTraining& training,
                           std::string_view pattern);

}  // namespace orthant
