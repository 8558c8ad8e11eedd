// The regular expressions of a tokenizer.json as PCRE2 reads them.
#pragma once

#include <string>
#include <string_view>

namespace orthant {

// Oniguruma's syntax, which tokenizer.json is written in, as PCRE2's: nested classes are flattened,
// \s means White_Space, categories are those of Unicode 16. A construct that the two read
// differently and that we do not translate is refused. `field` names the pattern in messages.
std::string pcre2_pattern(std::string_view oniguruma, const std::string& field);

}  // namespace orthant
