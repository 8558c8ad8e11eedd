// ASCII by a table of 128 classes, the rest by code point.
#include "data/word_patterns.h"

#include <array>

namespace orthant {
namespace {

constexpr CharClass ascii_class(int c) {
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return CharClass::kLetter;
  if (c >= '0' && c <= '9') return CharClass::kNumber;
  if (c == ' ' || (c >= '\t' && c <= '\r')) return CharClass::kSpace;
  return CharClass::kOther;
}

constexpr std::array<CharClass, 128> kAscii = [] {
  std::array<CharClass, 128> table{};
  for (int c = 0; c < 128; ++c) {
    table[static_cast<std::size_t>(c)] = ascii_class(c);
  }
  return table;
}();

struct ClassedPoint {
  CharClass kind;
  std::size_t length;
};

ClassedPoint point_at(const CharClasses& classes, std::string_view text, std::size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x80) return {kAscii[byte], 1};
  const CodePoint point = decode_utf8(text.data() + at);
  return {classes.of(point.value), static_cast<std::size_t>(point.length)};
}

// The end of 's, 't, 're, 've, 'm, 'll or 'd at text[at] == '\''; `at` when it is none of them.
std::size_t contraction_end(std::string_view text, std::size_t at) {
  if (at + 1 >= text.size()) return at;
  const char c = text[at + 1];
  if (c == 's' || c == 't' || c == 'm' || c == 'd') return at + 2;
  if (at + 2 >= text.size()) return at;
  const char d = text[at + 2];
  return (c == 'r' && d == 'e') || (c == 'v' && d == 'e') || (c == 'l' && d == 'l') ? at + 3 : at;
}

std::size_t run_end(const CharClasses& classes, std::string_view text, std::size_t at,
                    CharClass kind) {
  while (at < text.size()) {
    const ClassedPoint point = point_at(classes, text, at);
    if (point.kind != kind) break;
    at += point.length;
  }
  return at;
}

// \s+(?!\S)|\s+: all of the spaces at the end of the text, otherwise all but the last, which the
// next match takes when it is a blank; a single one is taken whole.
std::size_t space_end(const CharClasses& classes, std::string_view text, std::size_t at) {
  const std::size_t end = run_end(classes, text, at, CharClass::kSpace);
  if (end == text.size()) return end;
  const std::size_t last = previous_utf8(text, end);
  return last == at ? end : last;
}

bool is_newline(char c) {
  return c == '\n' || c == '\r';
}

// The end of [\r\n]* at `at`.
std::size_t newlines_end(std::string_view text, std::size_t at) {
  while (at < text.size() && is_newline(text[at])) {
    ++at;
  }
  return at;
}

// As contraction_end, in either case; U+017F is a small s, too.
std::size_t caseless_contraction_end(std::string_view text, std::size_t at) {
  if (text.substr(at + 1).starts_with("\xC5\xBF")) return at + 3;
  const char lower[3] = {'\'', at + 1 < text.size() ? static_cast<char>(text[at + 1] | 0x20) : ' ',
                         at + 2 < text.size() ? static_cast<char>(text[at + 2] | 0x20) : ' '};
  return at + contraction_end({lower, 3}, 0);
}

// \s*[\r\n]+|\s+(?!\S)|\s+: up to the last newline of the spaces, otherwise as GPT-2's.
std::size_t space_or_newline_end(const CharClasses& classes, std::string_view text,
                                 std::size_t at) {
  std::size_t end = at;
  std::size_t behind_newline = at;
  while (end < text.size()) {
    const ClassedPoint point = point_at(classes, text, end);
    if (point.kind != CharClass::kSpace) break;
    end += point.length;
    if (is_newline(text[end - 1])) behind_newline = end;
  }
  if (behind_newline != at) return behind_newline;
  if (end == text.size()) return end;
  const std::size_t last = previous_utf8(text, end);
  return last == at ? end : last;
}

}  // namespace

std::size_t gpt2_match_end(const CharClasses& classes, std::string_view text, std::size_t at) {
  if (text[at] == '\'') {
    const std::size_t end = contraction_end(text, at);
    if (end != at) return end;
  }
  const std::size_t begin = text[at] == ' ' && at + 1 < text.size() ? at + 1 : at;
  const ClassedPoint point = point_at(classes, text, begin);
  if (point.kind == CharClass::kSpace) return space_end(classes, text, at);
  return run_end(classes, text, begin + point.length, point.kind);
}

std::size_t llama3_match_end(const CharClasses& classes, std::string_view text, std::size_t at,
                             int most_digits) {
  if (text[at] == '\'') {
    const std::size_t end = caseless_contraction_end(text, at);
    if (end != at) return end;
  }
  const ClassedPoint first = point_at(classes, text, at);
  std::size_t end = at + first.length;
  if (first.kind == CharClass::kLetter) return run_end(classes, text, end, CharClass::kLetter);
  if (first.kind == CharClass::kNumber) {
    for (int i = 1; i < most_digits && end < text.size(); ++i) {
      const ClassedPoint point = point_at(classes, text, end);
      if (point.kind != CharClass::kNumber) break;
      end += point.length;
    }
    return end;
  }
  if (end < text.size() && !is_newline(text[at])) {
    const ClassedPoint second = point_at(classes, text, end);
    const bool is_word = second.kind == CharClass::kLetter;
    const bool is_other = second.kind == CharClass::kOther && text[at] == ' ';
    if (is_word) return run_end(classes, text, end + second.length, CharClass::kLetter);
    if (is_other) {
      return newlines_end(text, run_end(classes, text, end + second.length, CharClass::kOther));
    }
  }
  if (first.kind == CharClass::kSpace) return space_or_newline_end(classes, text, at);
  return newlines_end(text, run_end(classes, text, end, CharClass::kOther));
}

std::size_t cut_behind_letter(std::string_view text, std::size_t limit) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  if (limit >= text.size()) return text.size();
  for (std::size_t at = limit; at > 0; --at) {
    if ((text[at] == ' ' || text[at] == '\n') && is_letter(text[at - 1])) return at;
  }
  return text.size();
}

}  // namespace orthant
