// GPT-2's pattern by hand, an order of magnitude faster than a regex engine:
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
#pragma once

#include <cstddef>
#include <string_view>

#include "data/unicode.h"

namespace orthant {

inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Where the match that starts at `at` ends. The pattern matches at every position of a text, so
// consecutive calls cover it. `at` < text.size(), valid UTF-8.
std::size_t gpt2_match_end(const CharClasses& classes, std::string_view text, std::size_t at);

}  // namespace orthant
