// Walks a pattern once; every character is copied, translated or refused.
#include "data/regex_dialect.h"

#include <initializer_list>
#include <utility>

#include "base/check.h"
#include "data/unicode_16.h"

namespace orthant {
namespace {

constexpr std::string_view kSpaces =
    "\\x{09}-\\x{0D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}"
    "\\x{205F}\\x{3000}";
constexpr std::string_view kNewerHan =  // than Unicode 14
    "\\x{2B739}\\x{2EBF0}-\\x{2EE5D}\\x{31350}-\\x{323AF}";
constexpr std::string_view kCategories = "LMNPSZ";
constexpr std::string_view kRefusedEscapes = "bBhHRXZGKkgcCMuyYNO";

// What stands for a category inside a class: PCRE2's own and what its tables do not have yet.
std::string category_members(std::string_view category) {
  std::string members = fmt::format("\\p{{{}}}", category);
  for (const CategoryRange& range : kNewerThanUnicode14) {
    if (range.category.starts_with(category)) {
      members += fmt::format("\\x{{{:X}}}-\\x{{{:X}}}", range.first, range.last);
    }
  }
  return members;
}

std::string members_of_all(std::initializer_list<std::string_view> categories) {
  std::string members;
  for (const std::string_view category : categories) {
    members += category_members(category);
  }
  return members;
}

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
        "pattern like GPT-2's, LLaMA-3's, Qwen2's, BLOOM's, DeepSeek's or Mistral's",
        field_, pattern_, what, at_);
  }

  std::string_view rest() const { return pattern_.substr(at_); }

  void escape() {
    if (at_ + 1 == pattern_.size()) refuse("a lone backslash");
    const char c = pattern_[at_ + 1];
    switch (c) {
      case 's': members(std::string(kSpaces), false); break;
      case 'S': members(std::string(kSpaces), true); break;
      case 'd': members(category_members("Nd"), false); break;
      case 'D': members(category_members("Nd"), true); break;
      case 'w': members(word_members(class_depth_), false); break;
      case 'W': members(word_members(class_depth_), true); break;
      case 'v': out_ += "\\x{0B}"; break;
      case 'p':
      case 'P': property(c == 'P'); return;
      case 'A':
      case 'z':
        if (class_depth_ > 0) refuse(fmt::format("\\{} in a class", c));
        out_ += {'\\', c};
        break;
      case 'x':
        if (!rest().starts_with("\\x{")) refuse("\\x without a brace");
        out_ += "\\x";
        break;
      default:
        if ((c >= '0' && c <= '9') || kRefusedEscapes.find(c) != std::string_view::npos) {
          refuse(fmt::format("\\{}", c));
        }
        out_ += {'\\', c};
    }
    at_ += 2;
  }

  // Outside a class Oniguruma takes a table of Latin-1 that has superscripts and fractions, too.
  static std::string word_members(int class_depth) {
    const std::string members = "\\p{Alphabetic}" + members_of_all({"L", "M", "Nd", "Nl", "Pc"});
    return class_depth > 0 ? members : members + "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}";
  }

  // A set of characters, in a class or as one.
  void members(const std::string& set, bool is_negated) {
    if (class_depth_ == 0) {
      out_ += fmt::format("[{}{}]", is_negated ? "^" : "", set);
    } else {
      if (is_negated) refuse("a negated set in a class");
      out_ += set;
    }
  }

  void property(bool is_negated) {
    const std::size_t brace = pattern_.find('}', at_);
    if (!pattern_.substr(at_ + 2).starts_with('{') || brace == std::string_view::npos) {
      refuse("a property without braces");
    }
    std::string_view name = pattern_.substr(at_ + 3, brace - at_ - 3);
    if (name.starts_with('^')) {
      is_negated = !is_negated;
      name.remove_prefix(1);
    }
    const bool is_category = !name.empty() && name.size() <= 2 &&
                             kCategories.find(name[0]) != std::string_view::npos &&
                             (name.size() == 1 || (name[1] >= 'a' && name[1] <= 'z'));
    if (is_category) {
      members(category_members(name), is_negated);
    } else if (name == "Han") {
      members("\\p{sc:Han}" + std::string(kNewerHan), is_negated);
    } else {
      refuse(fmt::format("the property {}", name));
    }
    at_ = brace + 1;
  }

  void inside_class(char c) {
    if (c == '[') {
      const std::string_view inner = pattern_.substr(at_ + 1);
      if (inner.starts_with('^') || inner.starts_with(':'))
        refuse("a negated or named inner class");
      ++class_depth_;  // a union with the class around it: the brackets go
    } else if (c == ']') {
      if (--class_depth_ == 0) out_ += c;
    } else {
      if (rest().starts_with("&&")) refuse("an intersection of classes");
      out_ += c;
    }
    ++at_;
  }

  void outside_class(char c) {
    if (c == '$') {
      out_ += "(?=\\n|\\z)";  // the end of every line
    } else if (c == '^') {
      out_ += "(?:\\A|(?<=\\n)(?!\\z))";
    } else {
      if (rest().starts_with("}+")) refuse("a repeat of a repeat");
      if (rest().starts_with("{,")) refuse("a repeat without a least count");
      if (rest().starts_with("(?m")) refuse("the option m");
      if (c == '[') open_class();
      out_ += pattern_[at_];
    }
    ++at_;
  }

  void open_class() {
    ++class_depth_;
    if (rest().starts_with("[^")) {
      out_ += '[';
      ++at_;
    }
    if (pattern_.substr(at_ + 1).starts_with(']')) refuse("']' first in a class");
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
