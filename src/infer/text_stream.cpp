#include "infer/text_stream.h"

#include <algorithm>

#include "data/unicode.h"

namespace orthant {
namespace {

constexpr std::size_t kWindow = 16;  // ids that are enough to be inside a text
constexpr const char* kReplacement = "\xEF\xBF\xBD";

// Whether bytes to come can make a character of `text`, which is not UTF-8 and shorter than one.
bool is_begun(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() >= length) return false;
  if (text.size() > 1) {
    const auto second = static_cast<unsigned char>(text[1]);
    if (lead == 0xE0 && second < 0xA0) return false;  // longer than needed
    if (lead == 0xED && second > 0x9F) return false;  // a surrogate
    if (lead == 0xF0 && second < 0x90) return false;
    if (lead == 0xF4 && second > 0x8F) return false;  // beyond Unicode
  }
  return std::all_of(text.begin() + 1, text.end(),
                     [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; });
}

}  // namespace

TextStream::TextStream(const Tokenizer& tokenizer, std::span<const std::int32_t> before)
    : tokenizer_(tokenizer) {
  const auto tail = before.last(std::min(before.size(), kWindow));
  window_.assign(tail.begin(), tail.end());
  known_ = tokenizer_.decode(window_).size();
}

std::string TextStream::push(std::int32_t id) {
  window_.push_back(id);
  const std::string text = tokenizer_.decode(window_);
  rest_ += text.substr(std::min(known_, text.size()));
  known_ = text.size();
  if (window_.size() >= 2 * kWindow) {
    window_.erase(window_.begin(), window_.end() - kWindow);
    known_ = tokenizer_.decode(window_).size();
  }
  return take_whole();
}

std::string TextStream::finish() {
  if (rest_.empty()) return {};
  rest_.clear();
  return kReplacement;
}

std::string TextStream::take_whole() {
  std::string whole;
  while (!rest_.empty()) {
    const std::size_t stop = std::min(find_invalid_utf8(rest_), rest_.size());
    whole.append(rest_, 0, stop);
    rest_.erase(0, stop);
    if (rest_.empty() || is_begun(rest_)) break;
    whole += kReplacement;
    rest_.erase(0, 1);
  }
  return whole;
}

}  // namespace orthant
