// The tests of this program that run on all transports, once more on ranks of mpirun.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/comm/rank_bed.h"

namespace orthant {
namespace {

TEST(Mpi, PassesTheTestsOfAllTransports) {
  if (mpi_world() != nullptr) GTEST_SKIP() << "this is a rank of mpirun";
  const std::string mpirun = "/usr/bin/mpirun";
  if (!has_mpi() || !std::filesystem::exists(mpirun)) {
    GTEST_SKIP() << "no MPI is built in, or there is no " << mpirun;
  }
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  const std::string log = fmt::format("{}orthant-mpi-{}", testing::TempDir(), ::getpid());
  for (const int size : {2, 3, 8}) {
    // What MPI leaves behind at its end is not ours.
    const int status = std::system(
        fmt::format("ASAN_OPTIONS=detect_leaks=0 {} --allow-run-as-root --oversubscribe -n {} {} "
                    "--gtest_filter='Collectives*:Messages*:StartedCalls.*:Groups.*' >{} 2>&1",
                    mpirun, size, program, log)
            .c_str());
    std::ifstream file(log);
    EXPECT_EQ(status, 0) << std::string(std::istreambuf_iterator<char>(file), {});
  }
  std::filesystem::remove(log);
}

}  // namespace
}  // namespace orthant
