// The documents of a block of JSON lines.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace orthant {

// Calls on_text with the text under `key` of every line's object, or on_bad with what is wrong with
// the line; blank lines are passed over. `first_line` is the number of the first one.
void read_json_lines(std::string_view block, const std::string& key, std::int64_t first_line,
                     const std::function<void(std::string_view text, std::int64_t line)>& on_text,
                     const std::function<void(const std::string& why, std::int64_t line)>& on_bad);

}  // namespace orthant
