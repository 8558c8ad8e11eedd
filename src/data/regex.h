// Regular expressions over UTF-8, by PCRE2 with its compiler, read in the dialect of
// tokenizer.json.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;
struct pcre2_real_jit_stack_8;

namespace orthant {

struct TextRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool empty() const { return begin == end; }
};

// What one thread needs while it matches; serves every Regex.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

 private:
  friend class Regex;
  pcre2_real_match_data_8* data_;
  pcre2_real_match_context_8* context_;
  pcre2_real_jit_stack_8* stack_;
};

class Regex {
 public:
  // `field` names the pattern in messages.
  Regex(const std::string& pattern, const std::string& field);
  ~Regex();
  Regex(Regex&& other) noexcept;
  Regex& operator=(Regex&&) = delete;
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  // The first match at or after `from` that is not empty; an empty range when there is none.
  // `text` must be valid UTF-8.
  TextRange find(std::string_view text, std::size_t from, RegexScratch& scratch) const;

 private:
  std::string field_;
  pcre2_real_code_8* code_ = nullptr;
};

// Oniguruma's syntax, which tokenizer.json is written in, as PCRE2's: nested classes are flattened
// and \s means White_Space. A construct that the two read differently is refused by name.
std::string pcre2_pattern(std::string_view oniguruma, const std::string& field);

}  // namespace orthant
