#include "comm/launcher.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "comm/shm/shm_world.h"

namespace orthant {
namespace {

using Clock = Board::Clock;

constexpr int kLost = static_cast<int>(Fault::kLost);
constexpr int kSignals = 128;      // exit statuses above it name a signal
constexpr double kMostGrace = 10;  // seconds for the others to stop after a failure
constexpr int kLookEveryMs = 100;

void say(const std::string& message) {
  fmt::print(stderr, "orthant: {}\n", message);
}

// The output of one rank, handed on in whole lines.
class Output {
 public:
  Output(int from, int to, int rank) : from_(from), to_(to), rank_(rank) {}
  int fd() const { return from_; }
  bool is_open() const { return from_ >= 0; }

  void read() {
    std::array<char, 8192> bytes{};
    const ssize_t count = ::read(from_, bytes.data(), bytes.size());
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (count <= 0) return close();
    text_.append(bytes.data(), static_cast<std::size_t>(count));
    const std::size_t end = text_.rfind('\n');
    if (end == std::string::npos) return;
    write(std::string_view(text_).substr(0, end + 1));
    text_.erase(0, end + 1);
  }
  void close() {
    if (!text_.empty()) write(text_ + "\n");
    text_.clear();
    ::close(from_);
    from_ = -1;
  }

 private:
  void write(std::string_view lines) const {
    std::string tagged;
    while (!lines.empty()) {
      const std::size_t end = lines.find('\n') + 1;
      tagged += fmt::format("[rank {}] {}", rank_, lines.substr(0, end));
      lines.remove_prefix(end);
    }
    for (std::string_view rest = tagged; !rest.empty();) {
      const ssize_t count = ::write(to_, rest.data(), rest.size());
      if (count <= 0) return;
      rest.remove_prefix(static_cast<std::size_t>(count));
    }
  }

  int from_;
  int to_;
  int rank_;
  std::string text_;
};

struct Rank {
  pid_t pid = -1;
  bool is_running = false;
};

class Launcher {
 public:
  Launcher(int num_ranks, const std::vector<std::string>& arguments)
      : arguments_(arguments),
        world_(num_ranks),
        ranks_(static_cast<std::size_t>(num_ranks)) {
    block_signals();
  }
  ~Launcher() {
    kill_all(SIGKILL);
    for (const Rank& rank : ranks_) {
      if (rank.is_running) ::waitpid(rank.pid, nullptr, 0);
    }
    ::close(signal_fd_);
    ::pthread_sigmask(SIG_SETMASK, &signals_before_, nullptr);
  }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  int run() {
    ::signal(SIGPIPE, SIG_IGN);  // whoever reads may go; the ranks stay
    for (int rank = 0; rank < world_.size(); ++rank) {
      start(rank);
    }
    while (num_running() > 0) {
      wait();
      if (has_signal_) take_signals();
      take_ends();
      kill_who_does_not_stop();
    }
    for (Output& output : outputs_) {
      while (output.is_open()) {
        output.read();
      }
    }
    return status_of_all();
  }

 private:
  void block_signals() {
    sigemptyset(&signals_);
    for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) {
      struct sigaction action = {};
      ::sigaction(signal, nullptr, &action);
      if (action.sa_handler != SIG_IGN) sigaddset(&signals_, signal);  // nohup ignores SIGHUP
    }
    ::pthread_sigmask(SIG_BLOCK, &signals_, &signals_before_);
    signal_fd_ = ::signalfd(-1, &signals_, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signal_fd_ < 0) fail_run("signalfd: {}", std::strerror(errno));
  }
  int num_running() const {
    return static_cast<int>(std::count_if(ranks_.begin(), ranks_.end(),
                                          [](const Rank& rank) { return rank.is_running; }));
  }
  void kill_all(int signal) const {
    for (const Rank& rank : ranks_) {
      if (rank.is_running) ::kill(rank.pid, signal);
    }
  }

  void start(int rank) {
    std::array<int, 2> out = {-1, -1};
    std::array<int, 2> err = {-1, -1};
    if (rank > 0 && (::pipe2(out.data(), O_CLOEXEC) != 0 || ::pipe2(err.data(), O_CLOEXEC) != 0)) {
      fail_run("no pipe for the output of rank {}: {}", rank, std::strerror(errno));
    }
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) fail_run("rank {} cannot be started: {}", rank, std::strerror(errno));
    if (pid == 0) become(rank, parent, out[1], err[1]);
    ranks_[static_cast<std::size_t>(rank)] = {.pid = pid, .is_running = true};
    if (rank == 0) return;
    ::close(out[1]);
    ::close(err[1]);
    outputs_.emplace_back(out[0], STDOUT_FILENO, rank);
    outputs_.emplace_back(err[0], STDERR_FILENO, rank);
  }

  // In the child, between fork and exec.
  [[noreturn]] void become(int rank, pid_t parent, int out, int err) {
    // The rank goes with the launcher, however that ends.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) std::_Exit(kLost);
    ::pthread_sigmask(SIG_SETMASK, &signals_before_, nullptr);
    ::signal(SIGPIPE, SIG_DFL);
    if (rank > 0) {
      ::dup2(out, STDOUT_FILENO);
      ::dup2(err, STDERR_FILENO);
    }
    ::fcntl(world_.fd(), F_SETFD, 0);
    ::setenv("ORTHANT_RANK", fmt::format("{}", rank).c_str(), 1);
    ::setenv("ORTHANT_SIZE", fmt::format("{}", world_.size()).c_str(), 1);
    ::setenv("ORTHANT_WORLD_FD", fmt::format("{}", world_.fd()).c_str(), 1);
    // OpenMP threads that spin while they wait take the cores of other ranks.
    if (world_.size() > 1) ::setenv("OMP_WAIT_POLICY", "passive", 0);
    std::vector<std::string> words = {"orthant"};
    words.insert(words.end(), arguments_.begin(), arguments_.end());
    std::vector<char*> argv(words.size() + 1, nullptr);
    std::transform(words.begin(), words.end(), argv.begin(),
                   [](std::string& word) { return word.data(); });
    ::execv("/proc/self/exe", argv.data());
    fmt::print(stderr, "orthant: rank {} cannot be started: {}\n", rank, std::strerror(errno));
    std::_Exit(static_cast<int>(Fault::kRun));
  }

  void wait() {
    std::vector<pollfd> ready = {{.fd = signal_fd_, .events = POLLIN, .revents = 0}};
    for (const Output& output : outputs_) {
      ready.push_back({.fd = output.fd(), .events = POLLIN, .revents = 0});
    }
    ::poll(ready.data(), ready.size(), kLookEveryMs);
    has_signal_ = ready[0].revents != 0;
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      if (outputs_[i].is_open() && ready[i + 1].revents != 0) outputs_[i].read();
    }
  }

  void take_signals() {
    signalfd_siginfo info = {};
    while (::read(signal_fd_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal == SIGCHLD) continue;  // it has ended the wait
      // Asked twice, who has not stopped is killed.
      is_killing_ = is_killing_ || signal == stop_signal_;
      if (is_killing_) stop_status_ = kSignals + signal;
      kill_all(is_killing_ ? SIGKILL : signal);
      stop_signal_ = signal;
    }
  }

  // Whether or not a signal said so: a thread of this process may have taken that.
  void take_ends() {
    int raw = 0;
    for (pid_t pid = 0; (pid = ::waitpid(-1, &raw, WNOHANG)) > 0;) {
      const auto found = std::find_if(ranks_.begin(), ranks_.end(),
                                      [pid](const Rank& rank) { return rank.pid == pid; });
      if (found == ranks_.end()) continue;
      found->is_running = false;
      take_end(static_cast<int>(found - ranks_.begin()), raw);
    }
  }

  void take_end(int rank, int raw) {
    if (WIFSIGNALED(raw)) {
      const int signal = WTERMSIG(raw);
      if (signal == stop_signal_) stop_status_ = kSignals + signal;
      if (signal == stop_signal_ || is_killing_) return;
      lose(fmt::format("rank {} was killed by signal {} ({}); {}", rank, signal,
                       ::strsignal(signal), world_.board().describe(rank)));
      return;
    }
    const int status = WEXITSTATUS(raw);
    if (status == 0) return;
    int& kept = status > kSignals ? stop_status_ : status == kLost ? lost_status_ : own_status_;
    if (kept == 0) kept = status;
    if (status > kSignals) return;
    if (world_.board().report(-1, fmt::format("rank {} ended with status {}", rank, status))) {
      world_.ring_all();
    }
    begin_grace();
  }

  void lose(const std::string& message) {
    lost_status_ = kLost;
    if (world_.board().report(-1, message)) {
      say(message);
      world_.ring_all();
    }
    begin_grace();
  }

  void begin_grace() {
    if (has_grace_) return;
    has_grace_ = true;
    const double deadline_s = world_.board().deadline_s();
    grace_end_ =
        after(Clock::now(), deadline_s > 0 ? std::min(kMostGrace, deadline_s) : kMostGrace);
  }

  void kill_who_does_not_stop() {
    if (!has_grace_ && world_.board().has_failed()) begin_grace();
    if (!has_grace_) find_silent();
    if (!has_grace_ || is_killing_ || Clock::now() < grace_end_) return;
    is_killing_ = true;
    lost_status_ = kLost;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (!ranks_[rank].is_running) continue;
      say(fmt::format("{} and did not stop: it is killed",
                      world_.board().describe(static_cast<int>(rank))));
    }
    kill_all(SIGKILL);
  }

  // Nobody waits for a rank that is silent after the others have ended.
  void find_silent() {
    Board& board = world_.board();
    const int running = num_running();
    if (running == 0 || running == world_.size() || board.deadline_s() <= 0) return;
    std::string silent;
    for (int rank = 0; rank < world_.size(); ++rank) {
      if (!ranks_[static_cast<std::size_t>(rank)].is_running) continue;
      if (Clock::now() < after(board.last_sign(rank), board.deadline_s())) return;
      silent = board.describe(rank);
    }
    lose(fmt::format("{} and gave no sign of life for {:g} s, while other ranks have ended", silent,
                     board.deadline_s()));
  }

  int status_of_all() const {
    if (own_status_ != 0) return own_status_;
    if (lost_status_ != 0) return lost_status_;
    return stop_status_;
  }

  const std::vector<std::string>& arguments_;
  ShmWorld world_;
  std::vector<Rank> ranks_;
  std::vector<Output> outputs_;
  sigset_t signals_{};
  sigset_t signals_before_{};
  int signal_fd_ = -1;
  bool has_signal_ = false;
  int stop_signal_ = 0;  // that was handed on
  int own_status_ = 0;   // of the first rank that failed by itself
  int lost_status_ = 0;  // a rank was lost, or stopped because of another
  int stop_status_ = 0;  // 128 + signal
  bool has_grace_ = false;
  bool is_killing_ = false;
  Clock::time_point grace_end_{};
};

}  // namespace

int launch_ranks(int num_ranks, const std::vector<std::string>& arguments) {
  return Launcher(num_ranks, arguments).run();
}

}  // namespace orthant
