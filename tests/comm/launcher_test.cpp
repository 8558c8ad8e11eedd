// The launcher in a process that has threads of libraries, as CUDA's, which take signals too.
#include "comm/launcher.h"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace orthant {
namespace {

TEST(Launcher, HearsOfEveryEndBesideThreadsThatTakeSignals) {
  constexpr unsigned kMostSeconds = 60;
  constexpr int kLaunches = 20;
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(kMostSeconds);
    std::thread([] {
      std::this_thread::sleep_for(std::chrono::seconds(2 * kMostSeconds));
    }).detach();
    int status = 0;
    for (int i = 0; i < kLaunches && status == 0; ++i) {
      status = launch_ranks(2, {"--gtest_filter=None", "--gtest_brief=1"});
    }
    std::_Exit(status);
  }
  int raw = 0;
  ASSERT_EQ(::waitpid(pid, &raw, 0), pid);
  EXPECT_TRUE(WIFEXITED(raw)) << "signal " << WTERMSIG(raw) << ": a launcher waited for ever";
  EXPECT_EQ(WEXITSTATUS(raw), 0);
}

}  // namespace
}  // namespace orthant
