// ICU does the work; most texts are found in the form by a look at their bytes.
#include "data/normal_form.h"

#include <algorithm>

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uniset.h>

#include "base/check.h"
#include "data/unicode.h"

namespace orthant {
namespace {

constexpr std::size_t kBlockBytes = 1 << 16;
constexpr std::size_t kMaxBlockBytes = 1 << 29;  // ICU counts in 32 bits

void check(UErrorCode code) {
  ORTHANT_CHECK(U_SUCCESS(code) != 0, "ICU: {}", u_errorName(code));
}

const icu::Normalizer2& whole_form(NormalForm::Kind kind) {
  UErrorCode code = U_ZERO_ERROR;
  const icu::Normalizer2* form = nullptr;
  switch (kind) {
    case NormalForm::Kind::kNfc: form = icu::Normalizer2::getNFCInstance(code); break;
    case NormalForm::Kind::kNfd: form = icu::Normalizer2::getNFDInstance(code); break;
    case NormalForm::Kind::kNfkc: form = icu::Normalizer2::getNFKCInstance(code); break;
    case NormalForm::Kind::kNfkd: form = icu::Normalizer2::getNFKDInstance(code); break;
  }
  check(code);
  return *form;
}

icu::UnicodeSet assigned_in_unicode_9() {
  UErrorCode code = U_ZERO_ERROR;
  icu::UnicodeSet set(icu::UnicodeString("[:age=9.0:]"), code);
  check(code);
  set.freeze();
  return set;
}

// Below this byte are only code points that are themselves in the form, whatever is around them.
unsigned char first_byte_of_interest(NormalForm::Kind kind) {
  return kind == NormalForm::Kind::kNfc ? 0xCC : 0x80;  // U+0300 is the first of the marks
}

// A part of `text` that ends before an ASCII character, where no form joins anything.
std::size_t block_bytes(std::string_view text) {
  std::size_t size = std::min(kBlockBytes, text.size());
  while (size < text.size() && static_cast<unsigned char>(text[size]) >= 0x80) {
    ++size;
  }
  if (size > kMaxBlockBytes) {
    fail_user("tokenizer: {} bytes of text without an ASCII character; at most {} are supported",
              size, kMaxBlockBytes);
  }
  return size;
}

// Pairs that ICU's tables lack where they are older than Unicode 17.
struct LowerRange {
  std::uint32_t first;
  std::uint32_t last;
  std::uint32_t lower;  // of the first
};
constexpr LowerRange kNewerLower[] = {{0x1C89, 0x1C89, 0x1C8A},    {0xA7CB, 0xA7CB, 0x0264},
                                      {0xA7CC, 0xA7CC, 0xA7CD},    {0xA7CE, 0xA7CE, 0xA7CF},
                                      {0xA7D2, 0xA7D2, 0xA7D3},    {0xA7D4, 0xA7D4, 0xA7D5},
                                      {0xA7DA, 0xA7DA, 0xA7DB},    {0xA7DC, 0xA7DC, 0x019B},
                                      {0x10D50, 0x10D65, 0x10D70}, {0x16EA0, 0x16EB8, 0x16EBB}};

std::uint32_t lower_of(std::uint32_t code) {
  for (const LowerRange& range : kNewerLower) {
    if (code >= range.first && code <= range.last) return range.lower + (code - range.first);
  }
  return static_cast<std::uint32_t>(u_tolower(static_cast<UChar32>(code)));
}

}  // namespace

struct NormalForm::Tables {
  explicit Tables(Kind kind) : set(assigned_in_unicode_9()), form(whole_form(kind), set) {}
  icu::UnicodeSet set;
  icu::FilteredNormalizer2 form;
};

NormalForm::NormalForm(Kind kind) : kind_(kind), tables_(std::make_unique<Tables>(kind)) {}
NormalForm::~NormalForm() = default;
NormalForm::NormalForm(NormalForm&& other) noexcept = default;

std::string_view NormalForm::apply(std::string_view text, std::string& buffer) const {
  const unsigned char bound = first_byte_of_interest(kind_);
  const auto is_plain = [bound](std::string_view block) {
    return std::none_of(block.begin(), block.end(),
                        [bound](char c) { return static_cast<unsigned char>(c) >= bound; });
  };
  bool is_changed = false;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::string_view block = text.substr(begin, block_bytes(text.substr(begin)));
    if (!is_plain(block)) {
      const icu::StringPiece piece(block.data(), static_cast<std::int32_t>(block.size()));
      UErrorCode code = U_ZERO_ERROR;
      if (!is_changed && tables_->form.isNormalizedUTF8(piece, code) == 0) {
        buffer.assign(text.substr(0, begin));
        is_changed = true;
      }
      if (is_changed) {
        icu::StringByteSink<std::string> sink(&buffer);
        tables_->form.normalizeUTF8(0, piece, sink, nullptr, code);
      }
      check(code);
    } else if (is_changed) {
      buffer += block;
    }
    begin += block.size();
  }
  return is_changed ? std::string_view(buffer) : text;
}

void append_lower_case(std::string_view text, std::string& out) {
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text.data() + at);
    at += static_cast<std::size_t>(point.length);
    if (point.value == 0x130) {
      out += "i\xCC\x87";  // the only one that becomes two
    } else {
      append_utf8(lower_of(point.value), out);
    }
  }
}

}  // namespace orthant
