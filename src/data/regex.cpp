// PCRE2 stays in this file.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/regex.h"

#include <utility>

#include <pcre2.h>

#include "base/check.h"
#include "data/unicode.h"

namespace orthant {
namespace {

constexpr std::size_t kStackBytes = 32 << 10;
constexpr std::size_t kMaxStackBytes = 16 << 20;

std::string message_of(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

}  // namespace

RegexScratch::RegexScratch()
    : data_(pcre2_match_data_create(1, nullptr)),
      context_(pcre2_match_context_create(nullptr)),
      stack_(pcre2_jit_stack_create(kStackBytes, kMaxStackBytes, nullptr)) {
  ORTHANT_CHECK(data_ != nullptr && context_ != nullptr && stack_ != nullptr,
                "regex: no memory for matching");
  pcre2_jit_stack_assign(context_, nullptr, stack_);
}

RegexScratch::~RegexScratch() {
  pcre2_jit_stack_free(stack_);
  pcre2_match_context_free(context_);
  pcre2_match_data_free(data_);
}

Regex::Regex(const std::string& pattern, const std::string& field) : field_(field) {
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  ORTHANT_CHECK(context != nullptr, "regex: no memory for compiling");
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                        PCRE2_UTF | PCRE2_UCP, &error, &offset, context);
  pcre2_compile_context_free(context);
  if (code_ == nullptr) {
    fail_user("{}: the pattern {} is wrong at character {}: {}", field, pattern, offset,
              message_of(error));
  }
  pcre2_jit_compile(code_, PCRE2_JIT_COMPLETE);  // without it, matching is interpreted
}

Regex::~Regex() {
  pcre2_code_free(code_);
}

Regex::Regex(Regex&& other) noexcept
    : field_(std::move(other.field_)),
      code_(std::exchange(other.code_, nullptr)) {}

std::optional<TextRange> Regex::find(std::string_view text, std::size_t from,
                                     RegexScratch& scratch) const {
  const int found = pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                                PCRE2_NO_UTF_CHECK, scratch.data_, scratch.context_);
  if (found == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (found < 0) {
    fail_user("{}: the pattern cannot be matched against a text of {} bytes ({}); use another",
              field_, text.size(), message_of(found));
  }
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(scratch.data_);
  return TextRange{ends[0], ends[1]};
}

std::size_t Regex::next_code_point(std::string_view text, std::size_t at) {
  if (at >= text.size()) return at + 1;
  return at + static_cast<std::size_t>(decode_utf8(text.data() + at).length);
}

}  // namespace orthant
