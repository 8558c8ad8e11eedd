// GPT-2's byte alphabet: printable Latin-1 stands for itself, other bytes for U+0100 and on.
#include "data/token_texts.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/check.h"
#include "data/normalizer.h"
#include "data/tokenizer_file.h"
#include "data/unicode.h"

namespace orthant {
namespace {

constexpr std::uint32_t kNumByteCodes = 256 + 68;
constexpr std::size_t kMostGrowth = 8;  // of all texts together, by a decoder's replacements

constexpr bool is_own_code(std::uint32_t byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

// By code point: the byte, or -1.
constexpr std::array<int, kNumByteCodes> kByteOfCode = [] {
  std::array<int, kNumByteCodes> table{};
  table.fill(-1);
  std::uint32_t next = 256;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    table[is_own_code(byte) ? byte : next++] = static_cast<int>(byte);
  }
  return table;
}();

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  append_replaced(text, from, to, out.max_size(), out);
  return out;
}

}  // namespace

bool byte_level_bytes(std::string_view text, std::string& bytes) {
  std::string found;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text.data() + at);
    if (point.value >= kNumByteCodes || kByteOfCode[point.value] < 0) return false;
    found.push_back(static_cast<char>(kByteOfCode[point.value]));
    at += static_cast<std::size_t>(point.length);
  }
  bytes = std::move(found);
  return true;
}

std::string byte_level_text(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto found =
        std::find(kByteOfCode.begin(), kByteOfCode.end(), static_cast<unsigned char>(c));
    append_utf8(static_cast<std::uint32_t>(found - kByteOfCode.begin()), text);
  }
  return text;
}

void TokenTexts::add(const std::string& text, std::int32_t id) {
  ids_.emplace(text, id);
  max_id_ = std::max<std::int64_t>(max_id_, id);
}

std::int32_t TokenTexts::id_of(const std::string& text) const {
  const auto found = ids_.find(text);
  return found == ids_.end() ? -1 : found->second;
}

void TokenTexts::start_decoding() {
  constexpr std::size_t kSlack = 1 << 20;
  texts_.resize(static_cast<std::size_t>(max_id_) + 1);
  room_ = kSlack;
  for (const auto& [text, id] : ids_) {
    texts_[static_cast<std::size_t>(id)] = text;
    room_ += kMostGrowth * text.size();
  }
}

template <class Change>
void TokenTexts::change_all(Change&& change) {
  for (std::string& text : texts_) {
    change(text);
  }
  for (std::string& text : first_texts_) {
    change(text);
  }
}

void TokenTexts::decode_byte_level() {
  change_all([](std::string& text) { byte_level_bytes(text, text); });
}

void TokenTexts::replace(const std::string& from, const std::string& to) {
  change_all([&](std::string& text) {
    std::string changed;
    if (!append_replaced(text, from, to, text.size() + room_, changed)) {
      fail_user(
          "the tokenizer's decoder makes all tokens more than {} times as long as they are; give a "
          "tokenizer.json whose replacements are shorter",
          kMostGrowth);
    }
    room_ -= changed.size() > text.size() ? changed.size() - text.size() : 0;
    text = std::move(changed);
  });
}

void TokenTexts::decode_byte_names() {
  change_all([](std::string& text) {
    if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return;
    unsigned byte = 0;
    const auto result = std::from_chars(text.data() + 3, text.data() + 5, byte, 16);
    if (result.ptr == text.data() + 5) text.assign(1, static_cast<char>(byte));
  });
}

void TokenTexts::decode_metaspace(const std::string& mark, bool drops_first) {
  if (drops_first) {
    first_texts_ = texts_;
    for (std::string& text : first_texts_) {
      text = replaced(text, mark, "");
    }
  }
  for (std::string& text : texts_) {
    text = replaced(text, mark, " ");
  }
}

void TokenTexts::finish_decoding(DecoderSpec& decoder) {
  decoder.is_known.assign(texts_.size(), false);
  for (const auto& [text, id] : ids_) {
    decoder.is_known[static_cast<std::size_t>(id)] = true;
  }
  decoder.texts = std::move(texts_);
  decoder.first_texts = std::move(first_texts_);
}

}  // namespace orthant
