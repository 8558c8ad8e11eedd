// data pack: text and JSONL to an indexed dataset, by several threads, in the order of the input.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenizer.h"

namespace orthant {

struct PackOptions {
  // .jsonl, .ndjson and .json: one JSON object with a text a line, each a document; blank lines are
  // skipped. Every other file is one document.
  std::vector<std::string> inputs;
  std::string output;  // prefix
  std::string json_key = "text";
  bool append_end_of_document = false;
  int num_threads = 1;
  // Above 0, PREFIX-valid gets the last documents: round(fraction * documents), at least one. Of a
  // single document it gets the last round(fraction * tokens) tokens.
  double valid_fraction = 0;
};

struct PackCounts {
  std::int64_t num_documents = 0;
  std::int64_t num_tokens = 0;
  std::int64_t input_bytes = 0;
};

struct PackResult {
  PackCounts all;    // what was read
  PackCounts valid;  // what of it went to PREFIX-valid; its input_bytes are 0
};

// The output is whole or absent. The same inputs give the same bytes for any number of threads.
// Memory holds a few MiB a thread, or the longest document where a tokenizer cannot cut it.
PackResult pack(const Tokenizer& tokenizer, const PackOptions& options);

}  // namespace orthant
