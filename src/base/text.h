// Text for people: byte sizes, lists, and the nearest of some known names.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orthant {

// 1536 -> "1.5 KiB", 412 * 2^20 -> "412.0 MiB"; below 1024 "17 B".
std::string format_bytes(std::int64_t bytes);

// {"a", "b", "c"} -> "a, b, c".
std::string join(std::span<const std::string> parts, std::string_view separator = ", ");

std::vector<std::string> split(std::string_view text, char separator);

// The known name with the smallest edit distance to `name`; empty when `known` is.
std::string nearest(std::string_view name, std::span<const std::string> known);

// A table with columns padded to their widest cell; numbers (cells that start with a digit or '-')
// to the right.
std::string format_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace orthant
