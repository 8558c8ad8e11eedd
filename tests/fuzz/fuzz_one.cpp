// libFuzzer's entry: one reader, which the build names. scripts/fuzz.sh
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/readers.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace orthant::test;
  static const Reader& reader = find_reader(ORTHANT_FUZZ_READER);
  accepts(reader, {reinterpret_cast<const char*>(data), size});
  return 0;
}
