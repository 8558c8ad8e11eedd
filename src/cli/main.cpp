// orthant: the binary.
#include "cli/commands.h"

int main(int argc, char** argv) {
  return orthant::run_command_line(argc, argv);
}
