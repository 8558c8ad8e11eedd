// The inputs of data pack, read as streams and cut into blocks of a bounded size.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/byte_source.h"
#include "data/input_files.h"

namespace orthant {

// A place between two blocks.
struct InputPosition {
  std::int64_t file = 0;    // its index
  std::int64_t offset = 0;  // in the file, decompressed
  std::int64_t line = 1;    // its number
};

struct InputBlock {
  InputKind kind = InputKind::kText;
  std::string text;
  std::string path;
  std::int64_t first_line = 1;   // its number in the file
  bool begins_document = false;  // kText
  bool ends_document = false;    // kText
  InputPosition end;             // where the next block begins
  std::int64_t bytes_read = 0;   // of all inputs up to here, compressed where they are
};

// Where a text may be cut, as Tokenizer::safe_cut.
using SafeCut = std::function<std::size_t(std::string_view text, std::size_t limit)>;

// Lines are cut after a newline, texts where `safe_cut` says that it changes nothing; where the
// cuts are depends on the file alone. A block has about a MiB, or the longest line or document.
class InputBlocks {
 public:
  // `files` outlive this object.
  InputBlocks(const std::vector<InputFile>& files, SafeCut safe_cut, const InputPosition& begin);

  std::optional<InputBlock> next();

 private:
  void open();
  void fill(std::size_t bytes);  // the buffer has so many, or the rest of the file
  std::size_t line_cut();
  std::size_t text_cut();

  const std::vector<InputFile>& files_;
  SafeCut safe_cut_;
  InputPosition at_;
  std::unique_ptr<ByteSource> source_;  // of the file at at_
  std::string buffer_;                  // what follows at_
  bool is_at_end_ = false;              // the source has no more
  std::int64_t bytes_before_ = 0;       // of the files before
};

}  // namespace orthant
