// Unicode as the tokenizers need it: UTF-8, and the classes of code points in GPT-2's pattern.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orthant {

struct CodePoint {
  std::uint32_t value;
  int length;  // bytes it takes in UTF-8
};

// The code point at `at`, which must be the start of one in valid UTF-8.
inline CodePoint decode_utf8(const char* at) {
  const auto byte = [at](int i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(at[i]));
  };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {((lead & 0x1F) << 6) | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {((lead & 0x0F) << 12) | ((byte(1) & 0x3F) << 6) | (byte(2) & 0x3F), 3};
  return {
      ((lead & 0x07) << 18) | ((byte(1) & 0x3F) << 12) | ((byte(2) & 0x3F) << 6) | (byte(3) & 0x3F),
      4};
}

void append_utf8(std::uint32_t code, std::string& out);

// Where the code point that ends just before `end` begins; `end` > 0, valid UTF-8.
std::size_t previous_utf8(std::string_view text, std::size_t end);

// The byte at which `text` stops being UTF-8; npos when all of it is.
std::size_t find_invalid_utf8(std::string_view text);

enum class CharClass : std::uint8_t { kOther, kLetter, kNumber, kSpace };

// Unicode's White_Space, which is what \s means to Hugging Face's engines; PCRE2's \s also takes
// U+180E.
bool is_space(std::uint32_t code);

// Classes of all code points. Letters and numbers are those of Unicode 16, as in Hugging Face's
// regular expressions; punctuation is that of Unicode 8, as in its Punctuation.
class CharClasses {
 public:
  CharClasses();

  CharClass of(std::uint32_t code) const { return static_cast<CharClass>(table_[code] & 3); }
  // What Digits takes for a digit: numbers, with those of Unicode 17.
  bool is_numeric(std::uint32_t code) const { return (table_[code] & kNumeric) != 0; }
  bool is_word(std::uint32_t code) const { return (table_[code] & kWord) != 0; }  // \w
  bool is_punctuation(std::uint32_t code) const { return (table_[code] & kPunctuation) != 0; }

 private:
  static constexpr std::uint8_t kWord = 4;
  static constexpr std::uint8_t kPunctuation = 8;
  static constexpr std::uint8_t kNumeric = 16;

  void add_range(std::uint32_t first, std::uint32_t last, std::uint32_t categories);

  std::vector<std::uint8_t> table_;
};

}  // namespace orthant
