// data merge, data split and data verify: whole datasets as streams, in 64 bits, with constant
// memory. Sequences and documents stay as they are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/indexed_dataset.h"

namespace orthant {

struct DatasetCounts {
  std::int64_t num_documents = 0;
  std::int64_t num_sequences = 0;
  std::int64_t num_tokens = 0;
};

// The documents of all inputs, one after another. Types of tokens must agree.
DatasetCounts merge_datasets(const std::vector<std::string>& inputs, const std::string& output);

struct DatasetShare {
  std::string output;  // prefix
  double share = 0;    // of the documents, as a part of the sum of all shares
};

// Shares one after another, with bounds as Megatron's splits have them: of N documents up to
// round(N * sum of the shares so far), halves to even.
std::vector<DatasetCounts> split_dataset(const std::string& input,
                                         const std::vector<DatasetShare>& shares);

struct DatasetReport {
  TokenType type = TokenType::kU16;
  DatasetCounts counts;
  std::int64_t num_empty_documents = 0;
  std::int64_t longest_document = 0;  // tokens
  TokenRange range;                   // {0, -1} when there is no token
  std::uint32_t checksum = 0;         // CRC-32C of PREFIX.bin
};

// Reads every byte. A vocabulary above 0: ids must be below it.
DatasetReport verify_dataset(const std::string& prefix, std::int64_t vocab_size);

}  // namespace orthant
