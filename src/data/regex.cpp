// PCRE2 stays in this file.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/regex.h"

#include <utility>

#include <pcre2.h>

#include "base/check.h"

namespace orthant {
namespace {

constexpr std::size_t kStackBytes = 32 << 10;
constexpr std::size_t kMaxStackBytes = 16 << 20;
constexpr std::string_view kSpaces =
    "\\x{09}-\\x{0D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}"
    "\\x{205F}\\x{3000}";

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

TextRange Regex::find(std::string_view text, std::size_t from, RegexScratch& scratch) const {
  const int found =
      pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                  PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, scratch.data_, scratch.context_);
  if (found == PCRE2_ERROR_NOMATCH) return {};
  if (found < 0) fail_run("{}: matching failed: {}", field_, message_of(found));
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(scratch.data_);
  return {ends[0], ends[1]};
}

namespace {

// Walks a pattern once; every character is copied, replaced or refused.
class PatternTranslator {
 public:
  PatternTranslator(std::string_view pattern, const std::string& field)
      : pattern_(pattern),
        field_(field) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        escape();
      } else if (class_depth_ > 0) {
        inside_class(c);
      } else {
        outside_class(c);
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    fail_user(
        "{}: the pattern {} has {} at byte {}, which is not supported; use a tokenizer with a "
        "pattern like GPT-2's, LLaMA-3's, Qwen2's or BLOOM's",
        field_, pattern_, what, at_);
  }

  void escape() {
    if (at_ + 1 == pattern_.size()) refuse("a lone backslash");
    const char c = pattern_[at_ + 1];
    if (c == 's') {
      out_ += class_depth_ > 0 ? std::string(kSpaces) : "[" + std::string(kSpaces) + "]";
    } else if (c == 'S') {
      if (class_depth_ > 0) refuse("\\S in a class");
      out_ += "[^" + std::string(kSpaces) + "]";
    } else if (c == 'w' || c == 'W' || c == 'b' || c == 'B' || c == 'h' || c == 'H' || c == 'R' ||
               c == 'X' || c == 'A' || c == 'z' || c == 'Z' || c == 'G' || c == 'K' || c == 'k' ||
               c == 'g' || (c >= '0' && c <= '9')) {
      refuse(fmt::format("\\{}", c));
    } else {
      // \p{L} goes as a whole, so that its brace is not taken for the end of a repeat.
      const bool is_property = (c == 'p' || c == 'P') && pattern_.substr(at_ + 2).starts_with('{');
      const std::size_t brace = is_property ? pattern_.find('}', at_) : at_ + 1;
      if (brace == std::string_view::npos) refuse("a property without an end");
      out_ += pattern_.substr(at_, brace + 1 - at_);
      at_ = brace - 1;
    }
    at_ += 2;
  }

  void inside_class(char c) {
    if (c == '[') {
      const std::string_view rest = pattern_.substr(at_ + 1);
      if (rest.starts_with('^') || rest.starts_with(':')) refuse("a negated or named inner class");
      ++class_depth_;  // a union with the class around it: the brackets go
    } else if (c == ']') {
      if (--class_depth_ == 0) out_ += c;
    } else {
      if (pattern_.substr(at_).starts_with("&&")) refuse("an intersection of classes");
      out_ += c;
    }
    ++at_;
  }

  void outside_class(char c) {
    if (c == '^' || c == '$') refuse(fmt::format("'{}'", c));
    if (pattern_.substr(at_).starts_with("}+")) refuse("a repeat of a repeat");
    if (c == '(' && pattern_.substr(at_).starts_with("(?m")) refuse("the option m");
    if (c == '[') {
      ++class_depth_;
      if (pattern_.substr(at_).starts_with("[^")) {
        out_ += c;
        c = pattern_[++at_];
      }
      if (pattern_.substr(at_ + 1).starts_with(']')) refuse("']' first in a class");
    }
    out_ += c;
    ++at_;
  }

  std::string_view pattern_;
  const std::string& field_;
  std::string out_;
  std::size_t at_ = 0;
  int class_depth_ = 0;
};

}  // namespace

std::string pcre2_pattern(std::string_view oniguruma, const std::string& field) {
  return PatternTranslator(oniguruma, field).run();
}

}  // namespace orthant
