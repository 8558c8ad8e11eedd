// The readers of files that come from elsewhere, each as a function of bytes. What it reads is
// used as a program would use it. The fuzzer and the tests call the same ones.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::test {

struct Reader {
  std::string_view name;
  // Throws a user error for bytes that are no such file; anything else is a fault of ours.
  void (*read)(std::string_view bytes);
  // Files that are whole, to start from.
  std::vector<std::string> (*whole)();
};

std::span<const Reader> readers();
const Reader& find_reader(std::string_view name);

// True when the bytes are a file that is accepted, false when they are refused as a user's. Throws
// what is neither.
bool accepts(const Reader& reader, std::string_view bytes);

}  // namespace orthant::test
