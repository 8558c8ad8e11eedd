// Regular expressions over UTF-8, by PCRE2 with its compiler, read in the dialect of
// tokenizer.json.
#pragma once

#include <cstddef>
#include <optional>
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

  // The first match at or after `from`, which may be empty. `text` must be valid UTF-8.
  std::optional<TextRange> find(std::string_view text, std::size_t from,
                                RegexScratch& scratch) const;

  // Calls on_match for all matches as Oniguruma's iterator does: from left to right, but none that
  // is empty and lies at the end of the one before.
  template <class OnMatch>
  void for_each(std::string_view text, RegexScratch& scratch, OnMatch&& on_match) const {
    std::optional<std::size_t> last_end;
    for (std::size_t from = 0; from <= text.size();) {
      const std::optional<TextRange> match = find(text, from, scratch);
      if (!match.has_value()) break;
      if (match->empty() && last_end == match->end) {
        from = next_code_point(text, from);
        continue;
      }
      on_match(*match);
      from = match->end;
      last_end = from;
    }
  }

 private:
  static std::size_t next_code_point(std::string_view text, std::size_t at);

  std::string field_;
  pcre2_real_code_8* code_ = nullptr;
};

}  // namespace orthant
