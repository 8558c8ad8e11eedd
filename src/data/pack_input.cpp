// Lines are cut after a newline, texts where the tokenizer says that it changes nothing.
#include "data/pack_input.h"

#include <algorithm>
#include <filesystem>

#include "base/check.h"

namespace orthant {
namespace {

constexpr std::size_t kBlockBytes = 1 << 20;

bool has_lines(const std::string& path) {
  return path.ends_with(".jsonl") || path.ends_with(".ndjson") || path.ends_with(".json");
}

}  // namespace

InputBlocks::InputBlocks(const std::vector<std::string>& paths, const Tokenizer& tokenizer)
    : tokenizer_(tokenizer) {
  for (const std::string& path : paths) {
    const std::string ending = std::filesystem::path(path).extension().string();
    for (const std::string_view packed : {".gz", ".zst", ".xz", ".bz2", ".zip"}) {
      if (ending == packed) fail_user("data pack: {} is compressed; decompress it first", path);
    }
    files_.push_back(std::make_unique<MappedFile>(path));
    num_bytes_ += static_cast<std::int64_t>(files_.back()->bytes().size());
  }
}

std::optional<InputBlock> InputBlocks::next() {
  while (file_ < files_.size()) {
    const MappedFile& file = *files_[file_];
    const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                                file.bytes().size());
    const bool is_lines = has_lines(file.path());
    // An empty text is a document, too; an empty list of lines has none.
    if (at_ == text.size() && (is_lines || !text.empty())) {
      ++file_;
      at_ = 0;
      line_ = 1;
      continue;
    }
    InputBlock block = is_lines ? next_lines(text.substr(at_)) : next_text(text.substr(at_));
    block.path = file.path();
    block.offset = static_cast<std::int64_t>(at_);
    at_ += block.text.size();
    if (text.empty()) ++file_;
    return block;
  }
  return std::nullopt;
}

InputBlock InputBlocks::next_lines(std::string_view rest) {
  InputBlock block;
  block.kind = InputKind::kLines;
  block.first_line = line_;
  const std::size_t newline = rest.find('\n', std::min(kBlockBytes, rest.size()) - 1);
  block.text = rest.substr(0, newline == std::string_view::npos ? rest.size() : newline + 1);
  line_ += std::count(block.text.begin(), block.text.end(), '\n');
  return block;
}

InputBlock InputBlocks::next_text(std::string_view rest) const {
  InputBlock block;
  const std::size_t cut =
      rest.size() <= kBlockBytes ? rest.size() : tokenizer_.safe_cut(rest, kBlockBytes);
  block.text = rest.substr(0, cut);
  block.ends_document = cut == rest.size();
  return block;
}

}  // namespace orthant
