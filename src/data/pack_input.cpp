#include "data/pack_input.h"

#include <algorithm>
#include <utility>

namespace orthant {
namespace {

constexpr std::size_t kBlockBytes = 1 << 20;

}  // namespace

InputBlocks::InputBlocks(const std::vector<InputFile>& files, SafeCut safe_cut,
                         const InputPosition& begin)
    : files_(files),
      safe_cut_(std::move(safe_cut)),
      at_(begin) {
  for (std::int64_t i = 0; i < begin.file; ++i) {
    bytes_before_ += files[static_cast<std::size_t>(i)].bytes;
  }
}

std::optional<InputBlock> InputBlocks::next() {
  while (at_.file < static_cast<std::int64_t>(files_.size())) {
    const InputFile& file = files_[static_cast<std::size_t>(at_.file)];
    if (source_ == nullptr) open();
    const std::size_t cut = file.kind == InputKind::kLines ? line_cut() : text_cut();
    InputBlock block;
    block.kind = file.kind;
    block.path = file.path;
    block.first_line = at_.line;
    block.begins_document = at_.offset == 0;
    block.text = buffer_.substr(0, cut);
    buffer_.erase(0, cut);
    at_.offset += static_cast<std::int64_t>(cut);
    at_.line += std::count(block.text.begin(), block.text.end(), '\n');
    block.bytes_read = bytes_before_ + source_->bytes_read();
    // An empty text is a document, too; an empty list of lines has none.
    const bool is_empty_list = block.kind == InputKind::kLines && block.text.empty();
    if (is_at_end_ && buffer_.empty()) {
      block.ends_document = true;
      bytes_before_ += file.bytes;
      at_ = {at_.file + 1, 0, 1};
      source_.reset();
    }
    block.end = at_;
    if (!is_empty_list) return block;
  }
  return std::nullopt;
}

void InputBlocks::open() {
  source_ = open_source(files_[static_cast<std::size_t>(at_.file)]);
  skip(*source_, at_.offset);
  buffer_.clear();
  is_at_end_ = false;
}

void InputBlocks::fill(std::size_t bytes) {
  if (is_at_end_ || buffer_.size() >= bytes) return;
  const std::size_t before = buffer_.size();
  buffer_.resize(bytes);
  const std::size_t got = source_->read(std::span(buffer_).subspan(before));
  is_at_end_ = got < bytes - before;
  buffer_.resize(before + got);
}

std::size_t InputBlocks::line_cut() {
  fill(kBlockBytes);
  for (std::size_t searched = kBlockBytes - 1;;) {
    const std::size_t newline = buffer_.find('\n', searched);
    if (newline != std::string::npos) return newline + 1;
    if (is_at_end_) return buffer_.size();
    searched = buffer_.size();
    fill(2 * buffer_.size());
  }
}

std::size_t InputBlocks::text_cut() {
  fill(kBlockBytes + 1);
  if (is_at_end_ && buffer_.size() <= kBlockBytes) return buffer_.size();
  for (std::size_t limit = kBlockBytes;; limit = buffer_.size() - 1) {
    const std::size_t cut = safe_cut_(buffer_, limit);
    if (cut < buffer_.size() || is_at_end_) return cut;
    fill(2 * buffer_.size());
  }
}

}  // namespace orthant
