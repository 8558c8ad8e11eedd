// UTF-8 by hand; letters, numbers, word characters and punctuation by ICU's tables.
#include "data/unicode.h"

#include <cstring>
#include <string_view>

#include <unicode/uchar.h>

#include "data/unicode_16.h"

namespace orthant {
namespace {

constexpr std::uint32_t kNumCodes = 0x110000;

bool is_surrogate(std::uint32_t code) {
  return code >= 0xD800 && code < 0xE000;
}

// Bytes of the code point at text[at]; 0 when it is not one.
std::size_t valid_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return static_cast<unsigned char>(text[i]);
  };
  const unsigned char lead = byte(at);
  const std::size_t length = lead < 0x80   ? 1
                             : lead < 0xC2 ? 0
                             : lead < 0xE0 ? 2
                             : lead < 0xF0 ? 3
                                           : 4;
  if (length == 0 || lead > 0xF4 || length > text.size() - at) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return 0;
  }
  const std::uint32_t code = decode_utf8(text.data() + at).value;
  const bool is_overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  return is_overlong || code >= kNumCodes || is_surrogate(code) ? 0 : length;
}

// U_GC_..._MASK of a category's two letters.
std::uint32_t category_mask(std::string_view category) {
  constexpr std::string_view kLetters =
      "CnLuLlLtLmLoMnMeMcNdNlNoZsZlZpCcCfCoCsPdPsPePcPoSmScSkSoPiPf";
  return U_MASK(kLetters.find(category) / 2);
}

// ASCII, and what Unicode 8 calls punctuation; two of its characters are symbols and marks today.
bool is_old_punctuation(std::uint32_t code, std::uint32_t categories) {
  if (code < 0x80) return (categories & (U_GC_P_MASK | U_GC_S_MASK)) != 0;
  if (code == 0x166D || code == 0x111C9) return true;
  if ((categories & U_GC_P_MASK) == 0) return false;
  UVersionInfo age;
  u_charAge(static_cast<UChar32>(code), age);
  return age[0] != 0 && age[0] <= 8;  // 0: newer than the library
}

}  // namespace

void append_utf8(std::uint32_t code, std::string& out) {
  const auto put = [&out](std::uint32_t byte) {
    out.push_back(static_cast<char>(byte));
  };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | (code >> 6));
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3F));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

std::size_t previous_utf8(std::string_view text, std::size_t end) {
  std::size_t begin = end - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) {
    --begin;
  }
  return begin;
}

std::size_t find_invalid_utf8(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    // Eight bytes of ASCII at a time.
    std::uint64_t word = 0;
    if (text.size() - at >= sizeof(word)) {
      std::memcpy(&word, text.data() + at, sizeof(word));
      if ((word & 0x8080808080808080ull) == 0) {
        at += sizeof(word);
        continue;
      }
    }
    const std::size_t length = valid_length(text, at);
    if (length == 0) return at;
    at += length;
  }
  return std::string_view::npos;
}

bool is_space(std::uint32_t code) {
  if (code < 0x80) return code == ' ' || (code >= '\t' && code <= '\r');
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
         code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

CharClasses::CharClasses() : table_(kNumCodes, 0) {
  u_enumCharTypes(
      [](const void* classes, UChar32 start, UChar32 limit, UCharCategory type) -> UBool {
        auto* self = static_cast<CharClasses*>(const_cast<void*>(classes));
        self->add_range(static_cast<std::uint32_t>(start), static_cast<std::uint32_t>(limit - 1),
                        U_MASK(type));
        return true;
      },
      this);
  for (const CategoryRange& range : kNewerThanUnicode14) {
    add_range(range.first, range.last, category_mask(range.category));
  }
  for (std::uint32_t code = 0; code < kNumCodes; ++code) {
    if (u_hasBinaryProperty(static_cast<UChar32>(code), UCHAR_ALPHABETIC) != 0)
      table_[code] |= kWord;
  }
  for (const std::uint32_t joiner : {0x200C, 0x200D}) {
    table_[joiner] |= kWord;
  }
  for (std::uint32_t digit = 0x11DE0; digit <= 0x11DE9; ++digit) {
    table_[digit] |= kNumeric;
  }
  for (std::uint32_t number = 0x16FF4; number <= 0x16FF6; ++number) {
    table_[number] |= kNumeric;
  }
  for (std::uint32_t code = 0; code <= 0x3000; ++code) {
    if (is_space(code)) table_[code] |= static_cast<std::uint8_t>(CharClass::kSpace);
  }
}

void CharClasses::add_range(std::uint32_t first, std::uint32_t last, std::uint32_t categories) {
  std::uint8_t bits = 0;
  if ((categories & U_GC_L_MASK) != 0) bits = static_cast<std::uint8_t>(CharClass::kLetter) | kWord;
  if ((categories & U_GC_N_MASK) != 0)
    bits = static_cast<std::uint8_t>(CharClass::kNumber) | kNumeric;
  if ((categories & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_NL_MASK | U_GC_PC_MASK)) != 0) bits |= kWord;
  for (std::uint32_t code = first; code <= last; ++code) {
    table_[code] |= bits;
    if (is_old_punctuation(code, categories)) table_[code] |= kPunctuation;
  }
}

}  // namespace orthant
