// The input files of data pack and data train-tokenizer, named one by one or by folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace orthant {

enum class InputKind { kLines, kText };
enum class Compression { kNone, kGzip, kZstd };

struct InputFile {
  std::string path;
  // .jsonl, .ndjson and .json: one JSON object a line, each a document. Every other file is one
  // document.
  InputKind kind = InputKind::kText;
  Compression compression = Compression::kNone;  // by a further ending, .gz or .zst
  std::int64_t bytes = 0;
  std::int64_t modified = 0;  // when, in the clock of the file system
};

struct InputFiles {
  std::vector<InputFile> files;
  std::int64_t num_left_out = 0;  // files in folders with another ending
};

// Files in the order given; of a folder, those below it that end in .txt, .jsonl, .ndjson or .json,
// compressed or not, sorted by path.
InputFiles find_input_files(const std::vector<std::string>& inputs);

std::int64_t total_bytes(const std::vector<InputFile>& files);

}  // namespace orthant
