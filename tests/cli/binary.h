// The built binary as a user meets it: a subprocess in a folder of its own, with its exit status
// and what it wrote.
#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"

namespace orthant::test {

inline std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_content(const std::string& path, const std::string& content) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

struct Finished {
  int status = -1;  // as a shell gives it: 128 + n after signal n
  std::string out;
  std::string err;

  std::string last_line() const {
    std::string text = err;
    while (text.ends_with('\n')) {
      text.pop_back();
    }
    return text.substr(text.rfind('\n') + 1);
  }
  int num_error_lines() const {
    int count = err.starts_with("orthant: ") ? 1 : 0;
    for (std::size_t at = 0; (at = err.find("\northant: ", at)) != std::string::npos; ++at) {
      ++count;
    }
    return count;
  }
};

// A started binary. Its output goes to files in `folder`; it is killed when it takes too long.
class Process {
 public:
  struct Limits {
    std::int64_t file_bytes = 0;                // 0: none
    std::string out;                            // in place of a file in `folder`
    std::string program = {};                   // in place of the binary
    std::vector<std::string> environment = {};  // "NAME=value", added
    std::string err = {};                       // in place of a file in `folder`
  };

  Process(const std::string& folder, const std::vector<std::string>& arguments,
          const Limits& limits)
      : out_(limits.out.empty() ? folder + "/.out" : limits.out),
        err_(limits.err.empty() ? folder + "/.err" : limits.err) {
    std::filesystem::remove(err_);
    start(folder, arguments, limits);
  }
  ~Process() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void send(int signal) const { ::kill(pid_, signal); }
  pid_t pid() const { return pid_; }
  std::string err() const { return content_of(err_); }

  // False: it ended before `ready` was true.
  bool wait_until(const std::function<bool()>& ready) {
    while (!ready()) {
      if (has_ended()) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

  Finished finish() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    while (!has_ended()) {
      if (std::chrono::steady_clock::now() > deadline) {
        ADD_FAILURE() << "killed after two minutes; so far it said:\n" << err();
        send(SIGKILL);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    const bool is_file = std::filesystem::is_regular_file(out_);
    return {.status = status_, .out = is_file ? content_of(out_) : "", .err = err()};
  }

 private:
  void start(const std::string& folder, const std::vector<std::string>& arguments,
             const Limits& limits) {
    std::vector<std::string> words = {limits.program.empty() ? ORTHANT_BINARY : limits.program};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv(words.size() + 1, nullptr);
    std::transform(words.begin(), words.end(), argv.begin(),
                   [](std::string& word) { return word.data(); });
    pid_ = ::fork();
    if (pid_ == 0) {
      exec_child(folder, argv.data(), limits);
      ::_exit(127);
    }
  }
  void exec_child(const std::string& folder, char* const* argv, const Limits& limits) const {
    const int out = ::open(out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    const int err = ::open(err_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    const int in = ::open("/dev/null", O_RDONLY);
    if (::dup2(in, 0) < 0 || ::dup2(out, 1) < 0 || ::dup2(err, 2) < 0) return;
    if (::chdir(folder.c_str()) != 0) return;
    if (limits.file_bytes > 0) {
      const auto most = static_cast<rlim_t>(limits.file_bytes);
      const rlimit limit = {.rlim_cur = most, .rlim_max = most};
      if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return;
    }
    for (const std::string& variable : limits.environment) {
      const std::size_t equals = variable.find('=');
      ::setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1);
    }
    // Threads that spin while they wait are slow where others use the cores.
    ::setenv("OMP_WAIT_POLICY", "passive", 1);
    ::execv(argv[0], argv);
  }

  bool has_ended() {
    if (pid_ <= 0) return true;
    int raw = 0;
    if (::waitpid(pid_, &raw, WNOHANG) != pid_) return false;
    status_ = WIFSIGNALED(raw) ? 128 + WTERMSIG(raw) : WEXITSTATUS(raw);
    pid_ = -1;
    return true;
  }

  std::string out_;
  std::string err_;
  pid_t pid_ = -1;
  int status_ = -1;
};

// A folder with a small model's run file and data, made by the binary itself; gone afterwards.
class Workplace : public testing::Test {
 protected:
  static constexpr const char* kRun = R"([model]
family = "gpt"
layers = 4
hidden = 32
heads = 8
vocab = 256
max_positions = 32

[train]
steps = 4
global_batch = 8
seq_length = 16

[optimizer]
lr = 0.005
warmup_steps = 2

[data]
train = ["corpus"]
valid = ["corpus"]

[checkpoint]
dir = "ckpt"
keep = 0
)";

  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fmt::format("{}orthant-{}-{}-{}", testing::TempDir(), info->test_suite_name(),
                          info->name(), ::getpid());
    std::replace(folder_.begin() + static_cast<std::ptrdiff_t>(testing::TempDir().size()),
                 folder_.end(), '/', '-');
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    write_content(at("run.toml"), kRun);
    std::string text;
    std::uint32_t state = 12345;
    for (int i = 0; i < 4000; ++i) {
      state = state * 1664525 + 1013904223;
      text += static_cast<char>('a' + (state >> 24) % 26);
    }
    write_content(at("text.txt"), text);
    ASSERT_EQ(
        run({"data", "pack", "text.txt", "--tokenizer", "bytes", "--output", "corpus"}).status, 0);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string at(const std::string& name) const { return folder_ + "/" + name; }

  Finished run(const std::vector<std::string>& arguments,
               const Process::Limits& limits = {.file_bytes = 0, .out = ""}) const {
    return Process(folder_, arguments, limits).finish();
  }
  Finished train(std::vector<std::string> options,
                 const Process::Limits& limits = {.file_bytes = 0, .out = ""}) const {
    options.insert(options.begin(), {"train", "run.toml"});
    return run(options, limits);
  }
  void expect_trains(const std::vector<std::string>& options) const {
    const Finished done = train(options);
    ASSERT_EQ(done.status, 0) << done.err;
  }

  // Every file below `name`, by path; "" is all.
  std::map<std::string, std::string> files_of(const std::string& name) const {
    std::map<std::string, std::string> files;
    const std::string root = name.empty() ? folder_ : at(name);
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
      const std::string path = entry.path().string().substr(root.size() + 1);
      if (path.starts_with('.')) continue;  // a Process's own
      files[path] = entry.is_regular_file() ? content_of(entry.path().string()) : "";
    }
    return files;
  }

  // The status, one message as the last line with each of `parts` in it, and nothing changed.
  void expect_refused(const std::vector<std::string>& arguments, int status,
                      const std::vector<std::string>& parts) const {
    SCOPED_TRACE(fmt::format("orthant {}", fmt::join(arguments, " ")));
    const auto before = files_of("");
    const Finished done = run(arguments);
    expect_message(done, status, parts);
    EXPECT_EQ(names_of(files_of("")), names_of(before));
    EXPECT_TRUE(files_of("") == before) << "a file was changed";
  }
  void expect_train_refused(std::vector<std::string> options,
                            const std::vector<std::string>& parts) const {
    options.insert(options.begin(), {"train", "run.toml"});
    expect_refused(options, 2, parts);
  }

  static void expect_message(const Finished& done, int status,
                             const std::vector<std::string>& parts) {
    EXPECT_EQ(done.status, status) << done.err;
    EXPECT_EQ(done.num_error_lines(), 1) << done.err;
    EXPECT_TRUE(done.last_line().starts_with("orthant: ")) << done.err;
    for (const std::string& part : parts) {
      EXPECT_NE(done.last_line().find(part), std::string::npos)
          << "no '" << part << "' in: " << done.last_line();
    }
  }

  static std::vector<std::string> names_of(const std::map<std::string, std::string>& files) {
    std::vector<std::string> names(files.size());
    std::transform(files.begin(), files.end(), names.begin(),
                   [](const auto& file) { return file.first; });
    return names;
  }

  // The lines of a metrics.jsonl without what a clock decides.
  std::vector<std::string> losses(const std::string& log) const {
    std::vector<std::string> lines;
    std::ifstream file(at(log) + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const Json json = Json::parse(line, nullptr, false);
      if (json.is_discarded()) return {"not JSON: " + line};
      lines.push_back(fmt::format("{} {} {} {} {}", json["step"].dump(), json["loss"].dump(),
                                  json["grad_norm"].dump(), json["lr"].dump(),
                                  json["tokens"].dump()));
    }
    return lines;
  }

 private:
  std::string folder_;
};

}  // namespace orthant::test
