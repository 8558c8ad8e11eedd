// Files for tests: a folder that goes away, the shared fixtures, and expecting an error's message.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"

namespace orthant {

class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "orthant-data-XXXXXX").string();
    ORTHANT_CHECK(::mkdtemp(pattern.data()) != nullptr, "cannot make a folder for a test");
    folder_ = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, std::string_view content) const {
    write_file_atomically(path(name), content);
    return path(name);
  }

 private:
  std::filesystem::path folder_;
};

inline std::string shared(const std::string& path) {
  return std::string(ORTHANT_SOURCE_DIR) + "/../shared/" + path;
}

}  // namespace orthant

// They read like gtest's own.
// NOLINTNEXTLINE(readability-identifier-naming)
#define SKIP_WITHOUT_SHARED(path)                        \
  if (!std::filesystem::exists(::orthant::shared(path))) \
  GTEST_SKIP() << "the shared fixtures are absent: " << ::orthant::shared(path)

// The statement throws an Error whose message has `part` in it.
// NOLINTNEXTLINE(readability-identifier-naming)
#define EXPECT_ERROR(statement, part)                                                             \
  try {                                                                                           \
    (void)(statement);                                                                            \
    ADD_FAILURE() << "no error, expected: " << (part);                                            \
  } catch (const ::orthant::Error& error) {                                                       \
    EXPECT_NE(std::string_view(error.what()).find(part), std::string_view::npos) << error.what(); \
  }                                                                                               \
  static_assert(true)
