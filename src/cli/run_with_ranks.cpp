// Where the ranks of a command are: threads of this process, or processes of a launcher.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "base/check.h"
#include "cli/commands.h"
#include "comm/process_world.h"
#include "mem/gpus.h"
#include "train/run_config.h"
#include "train/run_ranks.h"

namespace orthant {
namespace {

// The command line, the program's name first.
std::vector<std::string> own_words() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) {
    words.push_back(word);
  }
  return words;
}

// This process as another command of the program; returns when it cannot be.
void begin_again(std::vector<std::string> words) {
  std::vector<char*> argv(words.size() + 1, nullptr);
  std::transform(words.begin(), words.end(), argv.begin(),
                 [](std::string& word) { return word.data(); });
  ::execv("/proc/self/exe", argv.data());
}

// OpenMP threads that spin while they wait take the cores of other ranks. Their library reads the
// variable before main, so the program begins again, once.
void wait_passively(const Environment& environment, int num_local) {
  if (num_local < 2 || threads_per_rank(num_local) < 2 || environment.contains("OMP_WAIT_POLICY")) {
    return;
  }
  ::setenv("OMP_WAIT_POLICY", "passive", 1);
  begin_again(own_words());
}

void require_world(const RunConfig& config, const Launch& launch, int size) {
  if (config.layout.ranks == size) return;
  fail_user("layout.ranks={}, but {} has started {}; start {} ranks, or set --layout.ranks={}",
            config.layout.ranks, name_of(launch.by), size, config.layout.ranks, size);
}

bool starts_processes(const RunConfig& config) {
  return config.device.kind == "cuda" && config.layout.ranks > 1 &&
         config.layout.ranks <= num_gpus();
}

// Streams that wait for other GPUs must not stand in the way of each other: each is to have a
// connection to its GPU of its own, which CUDA settles before its first call. NCCL is to connect
// ranks before their first call, not beside others.
void prepare_gpu_libraries() {
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  ::setenv("NCCL_RUNTIME_CONNECT", "0", 0);
}

// The end of a rank on a GPU, which has written all it has to say. What CUDA does when a process
// ends by itself may wait for other processes, whose GPUs have reached this one.
[[noreturn]] void end_process(std::unique_ptr<ProcessWorld> world, int status) {
  world.reset();
  std::fflush(nullptr);
  std::_Exit(status);
}

// As orthant launch: this process has asked for its GPUs, and a launcher is to have neither CUDA's
// threads, which may take its signals, nor memory of a GPU.
[[noreturn]] void launch_own_command(int ranks) {
  std::vector<std::string> words = own_words();
  const std::vector<std::string> launch = {"launch", "-n", std::to_string(ranks), "--"};
  words.insert(words.begin() + 1, launch.begin(), launch.end());
  begin_again(std::move(words));
  fail_run("orthant launch -n {} cannot be started: {}", ranks, std::strerror(errno));
}

}  // namespace

int run_processes(int ranks, const std::function<int(ProcessWorld& world)>& body) {
  const auto launch = detect_launch(read_environment());
  if (!launch) launch_own_command(ranks);
  constexpr double kDeadlineS = 60;
  prepare_gpu_libraries();
  auto world = join_process_world(*launch, kDeadlineS);
  const int status = body(*world);
  end_process(std::move(world), status);
}

int run_with_ranks(const RunArguments& arguments, const RankBody& body) {
  return run_with_ranks([&] { return load_run_config(arguments.path, arguments.overrides); }, body);
}

int run_with_ranks(const std::function<RunConfig()>& load, const RankBody& body) {
  const Environment environment = read_environment();
  const auto launch = detect_launch(environment);
  if (!launch) {
    const RunConfig config = load();
    if (starts_processes(config)) launch_own_command(config.layout.ranks);
    wait_passively(environment, config.layout.ranks);
    return body(config, nullptr);
  }
  wait_passively(environment, launch->local_size);
  // How long to wait for the others stands in the run file; what is wrong with it all say together.
  RunConfig config;
  std::optional<Error> wrong;
  try {
    config = load();
  } catch (const Error& error) {
    wrong = error;
  }
  if (config.device.kind == "cuda") prepare_gpu_libraries();
  auto world = join_process_world(*launch, config.layout.deadline_s);
  int status = 0;
  try {
    world->agree([&] {
      if (wrong) throw Error(*wrong);
      require_world(config, *launch, world->size());
    });
    world->set_deadline(config.layout.deadline_s);
    if (world->is_first()) {
      fmt::print(stderr, "ranks: {} processes, started by {}, connected by {}\n", world->size(),
                 name_of(launch->by), name_of(world->transport()));
    }
    status = body(config, world.get());
  } catch (const Reported&) {
    throw;
  } catch (const Error& error) {
    // A launcher may end all ranks when the first has left with a failure. None leaves its world
    // before all do, so it is said while that stands.
    say(error.what());
    throw Reported(error.fault(), error.what());
  }
  if (config.device.kind == "cuda") end_process(std::move(world), status);
  return status;
}

}  // namespace orthant
