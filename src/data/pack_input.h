// The inputs of data pack, cut into blocks of a bounded size.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "data/tokenizer.h"

namespace orthant {

enum class InputKind { kLines, kText };

// A view of a mapped file, which InputBlocks keeps.
struct InputBlock {
  InputKind kind = InputKind::kText;
  std::string_view text;
  std::string path;
  std::int64_t offset = 0;      // of the text in the file
  std::int64_t first_line = 1;  // kLines: its number
  bool ends_document = false;   // kText
};

class InputBlocks {
 public:
  InputBlocks(const std::vector<std::string>& paths, const Tokenizer& tokenizer);

  std::optional<InputBlock> next();
  std::int64_t num_bytes() const { return num_bytes_; }  // of all inputs

 private:
  InputBlock next_lines(std::string_view rest);
  InputBlock next_text(std::string_view rest) const;

  const Tokenizer& tokenizer_;
  std::vector<std::unique_ptr<MappedFile>> files_;
  std::size_t file_ = 0;
  std::size_t at_ = 0;     // in the file
  std::int64_t line_ = 1;  // at at_
  std::int64_t num_bytes_ = 0;
};

}  // namespace orthant
