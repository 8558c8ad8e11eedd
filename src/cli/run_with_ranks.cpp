// Where the ranks of a command are: threads of this process, or processes of a launcher.
#include <cstdlib>
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <unistd.h>

#include "base/check.h"
#include "cli/commands.h"
#include "comm/process_world.h"
#include "train/run_config.h"
#include "train/run_ranks.h"

namespace orthant {
namespace {

// OpenMP threads that spin while they wait take the cores of other ranks. Their library reads the
// variable before main, so the program begins again, once.
void wait_passively(const Environment& environment, int num_local) {
  if (num_local < 2 || threads_per_rank(num_local) < 2 || environment.contains("OMP_WAIT_POLICY")) {
    return;
  }
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string words{std::istreambuf_iterator<char>(file), {}};
  std::vector<char*> argv;
  for (std::size_t at = 0; at < words.size(); at = words.find('\0', at) + 1) {
    argv.push_back(words.data() + at);
  }
  argv.push_back(nullptr);
  ::setenv("OMP_WAIT_POLICY", "passive", 1);
  ::execv("/proc/self/exe", argv.data());
}

void require_world(const RunConfig& config, const Launch& launch, int size) {
  if (config.layout.ranks == size) return;
  fail_user("layout.ranks={}, but {} has started {}; start {} ranks, or set --layout.ranks={}",
            config.layout.ranks, name_of(launch.by), size, config.layout.ranks, size);
}

}  // namespace

int run_with_ranks(const RunArguments& arguments,
                   const std::function<int(const RunConfig& config, ProcessWorld* world)>& body) {
  const Environment environment = read_environment();
  const auto launch = detect_launch(environment);
  if (!launch) {
    const RunConfig config = load_run_config(arguments.path, arguments.overrides);
    wait_passively(environment, config.layout.ranks);
    return body(config, nullptr);
  }
  wait_passively(environment, launch->local_size);
  // How long to wait for the others stands in the run file; what is wrong with it all say together.
  RunConfig config;
  std::optional<Error> wrong;
  try {
    config = load_run_config(arguments.path, arguments.overrides);
  } catch (const Error& error) {
    wrong = error;
  }
  const auto world = join_process_world(*launch, config.layout.deadline_s);
  try {
    world->agree([&] {
      if (wrong) throw Error(*wrong);
      require_world(config, *launch, world->size());
    });
    world->set_deadline(config.layout.deadline_s);
    if (world->is_first()) {
      fmt::print(stderr, "ranks: {} processes, started by {}\n", world->size(),
                 name_of(launch->by));
    }
    return body(config, world.get());
  } catch (const Reported&) {
    throw;
  } catch (const Error& error) {
    // A launcher may end all ranks when the first has left with a failure. None leaves its world
    // before all do, so it is said while that stands.
    say(error.what());
    throw Reported(error.fault(), error.what());
  }
}

}  // namespace orthant
