// Writes the whole files of a reader into a folder: fuzz_seeds READER FOLDER
#include <cstdio>
#include <fstream>
#include <string>

#include "tests/fuzz/readers.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: fuzz_seeds READER FOLDER\n", stderr);
    return 2;
  }
  int number = 0;
  for (const std::string& bytes : orthant::test::find_reader(argv[1]).whole()) {
    std::ofstream(std::string(argv[2]) + "/whole" + std::to_string(number++), std::ios::binary)
        << bytes;
  }
  return 0;
}
