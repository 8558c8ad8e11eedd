// data pack: text and JSONL to an indexed dataset, by several threads, in the order of the input.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/tokenizer.h"

namespace orthant {

enum class BadLines { kStop, kSkip };

struct PackOptions {
  std::vector<std::string> inputs;  // files and folders: data/input_files.h
  std::string output;               // prefix
  std::string json_key = "text";
  bool append_end_of_document = false;
  bool adds_special = false;  // what the tokenizer's template puts around a text
  // A line that is no JSON object with a text, or a line of a text that is not UTF-8: an error, or
  // left out and listed in PREFIX.bad-lines.txt.
  BadLines bad_lines = BadLines::kStop;
  bool restarts = false;  // does not go on from what a killed packing left
  int num_threads = 1;
  // Above 0, PREFIX-valid gets the last documents: round(fraction * documents), at least one. Of a
  // single document it gets the last round(fraction * tokens) tokens.
  double valid_fraction = 0;
  double seconds_between_saves = 30;  // of the progress; 0: after every block
  // Called now and then with the bytes of input that are done and those that there are.
  std::function<void(std::int64_t done, std::int64_t all)> on_progress;
};

struct PackCounts {
  std::int64_t num_documents = 0;
  std::int64_t num_tokens = 0;
  std::int64_t input_bytes = 0;  // compressed where they are
};

struct PackResult {
  PackCounts all;    // what was read
  PackCounts valid;  // what of it went to PREFIX-valid; its input_bytes are 0
  std::int64_t num_bad_lines = 0;
  std::int64_t num_files_left_out = 0;  // of folders
};

// The output is whole or absent. The same inputs give the same bytes for any number of threads, and
// however often the packing was killed and started again. Memory holds a few MiB a thread, or the
// longest line, or the longest document where a tokenizer cannot cut it.
PackResult pack(const Tokenizer& tokenizer, const PackOptions& options);

}  // namespace orthant
