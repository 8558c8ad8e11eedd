// The patterns that most tokenizers cut words with, by hand: an order of magnitude faster than a
// regex engine.
#pragma once

#include <cstddef>
#include <string_view>

#include "data/unicode.h"

namespace orthant {

inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Where the match that starts at `at` ends. The patterns match at every position of a text, so
// consecutive calls cover it. `at` < text.size(), valid UTF-8.
std::size_t gpt2_match_end(const CharClasses& classes, std::string_view text, std::size_t at);
// LLaMA-3's with at most 3 digits, Qwen2's with 1.
std::size_t llama3_match_end(const CharClasses& classes, std::string_view text, std::size_t at,
                             int most_digits);

// The largest c <= limit, above 0, at which the three patterns end a piece whatever is around:
// before a blank or a newline behind an ASCII letter. text.size() when there is none.
std::size_t cut_behind_letter(std::string_view text, std::size_t limit);

}  // namespace orthant
