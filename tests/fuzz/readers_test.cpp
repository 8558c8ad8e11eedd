// Files that come from elsewhere are read or refused, never more: whole ones, the cases in found/,
// made by hand or kept by the fuzzer, and whole ones that are cut or damaged at every place.
#include "tests/fuzz/readers.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace orthant::test {
namespace {

namespace fs = std::filesystem;

class Readers : public testing::TestWithParam<std::string_view> {
 protected:
  const Reader& reader() const { return find_reader(GetParam()); }
};

std::int64_t peak_kib() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

TEST_P(Readers, AcceptWholeFiles) {
  for (const std::string& bytes : reader().whole()) {
    EXPECT_NO_THROW(reader().read(bytes)) << bytes;
  }
}

TEST_P(Readers, RefuseWhatIsCut) {
  for (const std::string& bytes : reader().whole()) {
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_NO_THROW(accepts(reader(), std::string_view(bytes).substr(0, size))) << size;
    }
  }
}

TEST_P(Readers, SurviveADamagedByteAnywhere) {
  for (const std::string& bytes : reader().whole()) {
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      for (const char damage : {'\x01', '\xff'}) {
        std::string damaged = bytes;
        damaged[at] = static_cast<char>(damaged[at] ^ damage);
        EXPECT_NO_THROW(accepts(reader(), damaged)) << at;
      }
    }
  }
}

TEST_P(Readers, SurviveTheCasesInFound) {
  const fs::path folder = fs::path(ORTHANT_SOURCE_DIR) / "tests" / "fuzz" / "found" / GetParam();
  int count = 0;
  constexpr std::int64_t kMostKib = 256 * 1024;
  const std::int64_t before = peak_kib();
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    EXPECT_NO_THROW(accepts(reader(), bytes)) << entry.path();
    EXPECT_LE(peak_kib() - before, kMostKib) << entry.path();
    ++count;
  }
  EXPECT_GT(count, 0) << folder;
}

INSTANTIATE_TEST_SUITE_P(Of, Readers,
                         testing::Values("idx", "safetensors", "tokenizer", "toml", "manifest"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace orthant::test
