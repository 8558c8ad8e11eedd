// Ranks as processes: of orthant launch, of mpirun, and by torchrun's variables. They train the
// bits that threads train, and none outlives a failure.
#include <cerrno>
#include <memory>
#include <optional>

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/json.h"
#include "comm/process_world.h"
#include "tests/cli/binary.h"

namespace orthant::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMpirun = "/usr/bin/mpirun";

bool has_mpirun() {
  return has_mpi() && fs::exists(kMpirun);
}

std::vector<std::string> mpirun_of(int ranks) {
  return {"--allow-run-as-root", "--oversubscribe", "-n", std::to_string(ranks), ORTHANT_BINARY};
}

// A variable in the environment that a process was started with.
std::string variable_of(pid_t pid, const std::string& name) {
  const std::string all = content_of(fmt::format("/proc/{}/environ", pid));
  const std::size_t at = (std::string(1, '\0') + all).find('\0' + name + "=");
  if (at == std::string::npos) return "";
  const std::size_t begin = at + name.size() + 1;
  return all.substr(begin, all.find('\0', begin) - begin);
}

// The processes that `parent` has started, by rank.
std::map<int, pid_t> ranks_of(pid_t parent, const std::string& variable) {
  std::map<int, pid_t> ranks;
  std::ifstream file(fmt::format("/proc/{}/task/{}/children", parent, parent));
  for (pid_t pid = 0; file >> pid;) {
    const std::string rank = variable_of(pid, variable);
    if (!rank.empty()) ranks[std::stoi(rank)] = pid;
  }
  return ranks;
}

bool is_running(pid_t pid) {
  const std::string stat = content_of(fmt::format("/proc/{}/stat", pid));
  const std::size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && stat.size() > name_end + 2 && stat[name_end + 2] != 'Z';
}

int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  socklen_t size = sizeof(address);
  EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(fd);
  return ntohs(address.sin_port);
}

class Processes : public Workplace {
 protected:
  using Words = std::vector<std::string>;

  static Words joined(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  static Words launched(int ranks, const Words& words) {
    return joined({"launch", "-n", std::to_string(ranks), "--"}, words);
  }
  // An endless training of four ranks, tp 2 and pp 2.
  static Words endless(const Words& more) {
    return joined({"train", "run.toml", "--layout.ranks=4", "--layout.tp=2", "--layout.pp=2",
                   "--train.steps=1000000"},
                  more);
  }
  Finished mpirun(int ranks, const Words& words) const {
    return Process(at(""), joined(mpirun_of(ranks), words),
                   {.file_bytes = 0,
                    .out = "",
                    .program = kMpirun,
                    .environment = {"ASAN_OPTIONS=detect_leaks=0"}})
        .finish();
  }
  // Until steps are being made; the processes by rank.
  std::map<int, pid_t> wait_for_steps(Process& process, const std::string& variable) const {
    EXPECT_TRUE(process.wait_until([&] { return losses("log").size() >= 3; })) << process.err();
    return ranks_of(process.pid(), variable);
  }
  static void expect_none_runs(const std::map<int, pid_t>& ranks) {
    for (const auto& [rank, pid] : ranks) {
      EXPECT_FALSE(is_running(pid)) << "rank " << rank;
    }
  }
};

TEST_F(Processes, TrainTheBitsOfThreads) {
  const std::vector<Words> layouts = {
      {"--layout.ranks=8", "--layout.tp=2", "--layout.pp=2"},
      {"--layout.ranks=4", "--layout.tp=4", "--precision.compute=bf16"},
      {"--layout.ranks=4", "--layout.zero_stage=0"},
  };
  for (const Words& layout : layouts) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(layout, " ")));
    for (const char* folder : {"log0", "log1", "log2", "ckpt0", "ckpt1", "ckpt2"}) {
      fs::remove_all(at(folder));
    }
    const int ranks = layout.front().back() - '0';
    const Words options = joined({"train", "run.toml", "--checkpoint.interval=2"}, layout);
    const auto into = [&](int i) {
      return joined(options,
                    {fmt::format("--log.dir=log{}", i), fmt::format("--checkpoint.dir=ckpt{}", i)});
    };
    ASSERT_EQ(run(into(0)).status, 0);
    const Finished processes = run(launched(ranks, into(1)));
    ASSERT_EQ(processes.status, 0) << processes.err;
    EXPECT_EQ(losses("log1"), losses("log0"));
    EXPECT_TRUE(files_of("ckpt1") == files_of("ckpt0"));
    if (!has_mpirun()) continue;
    const Finished mpi = mpirun(ranks, into(2));
    ASSERT_EQ(mpi.status, 0) << mpi.err;
    EXPECT_EQ(losses("log2"), losses("log0"));
    EXPECT_TRUE(files_of("ckpt2") == files_of("ckpt0"));
  }
}

TEST_F(Processes, EvaluateLikeThreads) {
  const Words options = {
      "eval", "run.toml", "--layout.ranks=4", "--layout.tp=2", "--train.eval_steps=2", "--logits"};
  const Finished threads = run(joined(options, {"logits0"}));
  const Finished processes = run(launched(4, joined(options, {"logits1"})));
  ASSERT_EQ(threads.status, 0) << threads.err;
  ASSERT_EQ(processes.status, 0) << processes.err;
  EXPECT_EQ(processes.out, threads.out);
  EXPECT_TRUE(content_of(at("logits1")) == content_of(at("logits0")));
}

TEST_F(Processes, AKilledRankStopsAll) {
  Process process(at(""), launched(4, endless({})), {.file_bytes = 0, .out = ""});
  const auto ranks = wait_for_steps(process, "ORTHANT_RANK");
  ASSERT_EQ(ranks.size(), 4U);
  ::kill(ranks.at(2), SIGKILL);
  const Finished done = process.finish();
  EXPECT_EQ(done.status, 4) << done.err;
  EXPECT_EQ(done.num_error_lines(), 1) << done.err;
  EXPECT_NE(done.err.find("orthant: rank 2 was killed by signal 9 (Killed); rank 2 "),
            std::string::npos)
      << done.err;
  expect_none_runs(ranks);
}

TEST_F(Processes, ARankThatStopsRespondingStopsAll) {
  Process process(at(""), launched(4, endless({"--layout.deadline_s=5"})),
                  {.file_bytes = 0, .out = ""});
  const auto ranks = wait_for_steps(process, "ORTHANT_RANK");
  ASSERT_EQ(ranks.size(), 4U);
  ::kill(ranks.at(1), SIGSTOP);
  const Finished done = process.finish();
  EXPECT_EQ(done.status, 4) << done.err;
  EXPECT_NE(done.err.find("waited 5 s in "), std::string::npos) << done.err;
  EXPECT_NE(done.err.find(" group "), std::string::npos) << done.err;
  EXPECT_NE(done.err.find("rank 1 "), std::string::npos) << done.err;
  EXPECT_NE(done.err.find("did not stop: it is killed"), std::string::npos) << done.err;
  expect_none_runs(ranks);
}

TEST_F(Processes, RanksGoWithTheirLauncher) {
  Process process(at(""), launched(4, endless({})), {.file_bytes = 0, .out = ""});
  const auto ranks = wait_for_steps(process, "ORTHANT_RANK");
  process.send(SIGKILL);
  EXPECT_EQ(process.finish().status, 128 + SIGKILL);
  for (const auto& [rank, pid] : ranks) {
    for (int look = 0; look < 1000 && is_running(pid); ++look) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  expect_none_runs(ranks);
}

TEST_F(Processes, ASignalSavesACheckpointAndNoBitDiffers) {
  const Words options = {"train",         "run.toml",          "--layout.ranks=2",
                         "--layout.tp=2", "--train.steps=200", "--train.global_batch=2"};
  ASSERT_EQ(run(joined(options, {"--log.dir=log0", "--checkpoint.dir=ckpt0"})).status, 0);
  Process process(at(""), launched(2, options), {.file_bytes = 0, .out = ""});
  const auto ranks = wait_for_steps(process, "ORTHANT_RANK");
  process.send(SIGTERM);
  const Finished stopped = process.finish();
  ASSERT_EQ(stopped.status, 128 + SIGTERM) << stopped.err;
  EXPECT_EQ(stopped.num_error_lines(), 0) << stopped.err;
  const std::string folder = fmt::format("ckpt/step-{:08}", losses("log").size());
  EXPECT_TRUE(fs::exists(at(folder + "/manifest.json"))) << folder;
  expect_none_runs(ranks);
  const Finished resumed = run(launched(2, options));
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(losses("log"), losses("log0"));
  EXPECT_TRUE(files_of("ckpt/step-00000200") == files_of("ckpt0/step-00000200"));
}

TEST_F(Processes, WhatIsWrongIsSaidOnceBeforeAnythingStarts) {
  expect_refused(launched(4, {"train", "run.toml", "--layout.ranks=8"}), 2,
                 {"layout.ranks=8, but orthant launch has started 4"});
  expect_refused(launched(4, {"train", "run.toml", "--layout.ranks=4", "--layout.rank=4"}), 2,
                 {"layout.rank"});
  expect_refused(launched(2, {"train", "none.toml"}), 2, {"none.toml"});
  expect_refused(launched(2, {"train"}), 2, {"RUN.toml is required"});
  expect_refused(launched(2, {"generate", "ckpt"}), 2, {"'generate' was asked"});
  expect_refused({"launch", "-n", "2"}, 2, {"'' was asked"});
  expect_refused({"launch", "--", "train", "run.toml"}, 2, {"--ranks is required"});
  expect_refused({"launch", "-n", "0", "--", "train", "run.toml"}, 2, {"--ranks"});
}

TEST_F(Processes, AFailureOfOneRankIsTheStatusOfAll) {
  const Finished done = run(
      launched(4, {"train", "run.toml", "--layout.ranks=4", "--optimizer.lr=1e30",
                   "--optimizer.warmup_steps=0", "--optimizer.clip_grad=0", "--train.steps=20"}));
  EXPECT_EQ(done.status, 1) << done.err;
  EXPECT_NE(done.err.find("the first that is not finite"), std::string::npos) << done.err;
}

class Torchrun : public Processes {
 protected:
  std::unique_ptr<Process> start(int number, int rank, int size, const Words& words,
                                 const Words& more = {}) const {
    const Words variables = {fmt::format("RANK={}", rank), fmt::format("WORLD_SIZE={}", size),
                             "MASTER_ADDR=127.0.0.1", fmt::format("MASTER_PORT={}", port_)};
    return std::make_unique<Process>(at(""), words,
                                     Process::Limits{.file_bytes = 0,
                                                     .out = at(fmt::format(".out{}", number)),
                                                     .program = {},
                                                     .environment = joined(variables, more),
                                                     .err = at(fmt::format(".err{}", number))});
  }

 private:
  int port_ = free_port();
};

TEST_F(Torchrun, RanksMeetAndTrainTheBitsOfThreads) {
  const Words options = {"train", "run.toml", "--layout.ranks=2", "--layout.pp=2"};
  ASSERT_EQ(run(joined(options, {"--log.dir=log0", "--checkpoint.dir=ckpt0"})).status, 0);
  const auto second = start(1, 1, 2, options);
  const Finished first = start(0, 0, 2, options)->finish();
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(second->finish().status, 0);
  EXPECT_EQ(losses("log"), losses("log0"));
  EXPECT_TRUE(files_of("ckpt") == files_of("ckpt0"));
}

// On one host by memory, of hosts that NCCL's variable tells apart by sockets.
TEST_F(Torchrun, WhichHostARankIsOnIsWhatNcclGoesBy) {
  const Words options = {"train", "run.toml", "--layout.ranks=2", "--layout.tp=2"};
  const std::pair<const char*, const char*> cases[] = {{"NCCL_HOSTID=a", "shm"},
                                                       {"NCCL_HOSTID=b", "sockets"}};
  for (const auto& [host, links] : cases) {
    fs::remove_all(at("log"));
    fs::remove_all(at("ckpt"));
    const auto second = start(1, 1, 2, options, {host, "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1"});
    const Finished first =
        start(0, 0, 2, options, {"NCCL_HOSTID=a", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1"})->finish();
    EXPECT_EQ(first.status, 0) << first.err;
    EXPECT_EQ(second->finish().status, 0);
    EXPECT_NE(first.err.find(fmt::format("started by torchrun, connected by {}\n", links)),
              std::string::npos)
        << first.err;
    EXPECT_EQ(losses("log").size(), 4U);
  }
}

TEST_F(Torchrun, DuplicatesAndGapsAreReported) {
  const Words options = {"train", "run.toml", "--layout.ranks=3", "--layout.deadline_s=2",
                         "--train.global_batch=9"};
  const auto one = start(1, 1, 3, options);
  const auto again = start(2, 1, 3, options);
  const Finished doubled = start(0, 0, 3, options)->finish();
  expect_message(doubled, 2, {"2 processes say that they are rank 1 of 3"});
  EXPECT_EQ(one->finish().status, 2);
  EXPECT_EQ(again->finish().status, 2);
  const Finished alone = start(0, 0, 3, options)->finish();
  expect_message(alone, 2, {"of 3 ranks 2 have not come: 1, 2"});
  EXPECT_FALSE(fs::exists(at("log")));
}

TEST_F(Torchrun, ALostRankStopsTheOthers) {
  const Words options = endless({"--layout.ranks=2", "--layout.tp=1"});
  const auto second = start(1, 1, 2, options);
  const auto first = start(0, 0, 2, options);
  ASSERT_TRUE(first->wait_until([&] { return losses("log").size() >= 3; })) << first->err();
  second->send(SIGKILL);
  const Finished done = first->finish();
  EXPECT_EQ(done.status, 4) << done.err;
  expect_message(done, 4, {"rank 1 was lost", "rank 1 "});
  EXPECT_EQ(second->finish().status, 128 + SIGKILL);
}

// Bytes of the memory that a launcher's ranks share; the launcher holds it open.
std::int64_t shared_bytes(pid_t launcher) {
  for (const auto& entry : fs::directory_iterator(fmt::format("/proc/{}/fd", launcher))) {
    struct stat file = {};
    std::error_code gone;
    const bool is_shared =
        fs::read_symlink(entry.path(), gone).string().starts_with("/memfd:orthant");
    if (is_shared && ::stat(entry.path().c_str(), &file) == 0) return file.st_blocks * 512;
  }
  return 0;
}

TEST_F(Processes, ShareNoMoreMemoryThanPlanned) {
  Words words = endless({"--json", "--transport=shm"});
  words.front() = "plan";
  const Finished planned = run(words);
  ASSERT_EQ(planned.status, 0) << planned.err;
  std::int64_t links = 0;
  const Json plan = Json::parse(planned.out);
  for (const auto& rank : plan["ranks"]) {
    links += rank["host_classes"]["communication"].get<std::int64_t>();
  }
  Process process(at(""), joined({"launch", "-n", "4", "--"}, endless({})), {});
  ASSERT_EQ(wait_for_steps(process, "ORTHANT_RANK").size(), 4U);
  const std::int64_t found = shared_bytes(process.pid());
  constexpr std::int64_t kBoard = 64 << 10;  // statuses and bells
  EXPECT_GT(found, 4 * 4096);
  EXPECT_LE(found, links + kBoard);
  ::kill(process.pid(), SIGTERM);
  process.finish();
}

TEST_F(Processes, OfMpiThatAreLostOrStopEndAll) {
  if (!has_mpirun()) GTEST_SKIP() << "no MPI is built in, or there is no " << kMpirun;
  for (const int signal : {SIGSTOP, SIGKILL}) {
    fs::remove_all(at("log"));
    Process process(at(""), joined(mpirun_of(4), endless({"--layout.deadline_s=5"})),
                    {.file_bytes = 0,
                     .out = "",
                     .program = kMpirun,
                     .environment = {"ASAN_OPTIONS=detect_leaks=0"}});
    const auto ranks = wait_for_steps(process, "OMPI_COMM_WORLD_RANK");
    ASSERT_EQ(ranks.size(), 4U);
    ::kill(ranks.at(1), signal);
    const Finished done = process.finish();
    if (signal == SIGSTOP) {
      EXPECT_EQ(done.status, 4) << done.err;
      EXPECT_NE(done.err.find("waited 5 s in "), std::string::npos) << done.err;
      EXPECT_NE(done.err.find("rank 1 "), std::string::npos) << done.err;
    } else {
      EXPECT_NE(done.status, 0) << done.err;
    }
    expect_none_runs(ranks);
  }
}

// mpirun ends all ranks when one has left with a failure; what they have agreed on is said before.
// The first rank's standard error is a pipe that is full for some seconds.
TEST_F(Processes, OfMpiDoNotLeaveBeforeWhatIsWrongIsSaid) {
  if (!has_mpirun()) GTEST_SKIP() << "no MPI is built in, or there is no " << kMpirun;
  ASSERT_EQ(::mkfifo(at("slow").c_str(), 0600), 0);
  std::ofstream(at("first.sh"))
      << ("exec 3<>slow\n"
          "head -c 65536 /dev/zero >&3\n"
          "setsid sh -c 'sleep 4; exec cat slow >said' 3>&- &\n"
          "exec " ORTHANT_BINARY " train run.toml --layout.ranks=8 2>&3\n");
  const Finished done =
      Process(at(""),
              {"--allow-run-as-root", "--oversubscribe", "-n", "1", "sh", "first.sh", ":", "-n",
               "2", ORTHANT_BINARY, "train", "run.toml", "--layout.ranks=8"},
              {.file_bytes = 0,
               .out = "",
               .program = kMpirun,
               .environment = {"ASAN_OPTIONS=detect_leaks=0"}})
          .finish();
  EXPECT_EQ(done.status, 2) << done.err;
  EXPECT_NE(content_of(at("said")).find("layout.ranks=8, but mpirun has started 3"),
            std::string::npos)
      << content_of(at("said")) << done.err;
}

}  // namespace
}  // namespace orthant::test
