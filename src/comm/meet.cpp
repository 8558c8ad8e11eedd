#include "comm/meet.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "comm/host.h"
#include "comm/shm/shm_world.h"
#include "comm/tcp/socket.h"
#include "comm/tcp/tcp_wires.h"

namespace orthant {
namespace {

using Time = Board::Clock::time_point;

// What a rank says when it comes, and what it is told.
constexpr std::uint64_t kMagic = 0x6f727468616e7431ull;
struct Hello {
  std::uint64_t magic = kMagic;
  int rank = 0;
  int size = 0;
  int port = 0;                  // where ranks of other hosts can come to this one
  std::array<char, 160> host{};  // equal where memory can be shared
};
struct Answer {
  enum class Links { kNone, kMemory, kSockets } links = Links::kNone;
  int pid = 0;  // of rank 0, which has the memory as its file `fd`
  int fd = -1;
  int num_local = 0;               // ranks of the host of the one that is told
  std::array<char, 1000> error{};  // why there are no links
};

template <std::size_t N>
void put(std::array<char, N>& to, const std::string& text) {
  std::copy_n(text.begin(), std::min(text.size(), N - 1), to.begin());
}

// The whole of a value, or false.
template <class T>
bool read_value(const Socket& socket, T& value, Time end) {
  return read_whole(socket, std::as_writable_bytes(std::span(&value, 1)), end);
}
template <class T>
void write_value(const Socket& socket, const T& value) {
  write_whole(socket, std::as_bytes(std::span(&value, 1)));
}

std::string address_of(const Launch& launch) {
  return fmt::format("{}:{}", launch.host, launch.port);
}

// Rank 0 hears of the end of all, the others of rank 0's.
class Ends final : public PeerWatch {
 public:
  explicit Ends(int rank) : rank_(rank) {}
  void add(int rank, Socket socket) { others_.emplace_back(rank, std::move(socket)); }
  void look(Board& board) override {
    for (auto& [other, socket] : others_) {
      char byte = 0;
      if (!socket.is_open()) continue;
      const ssize_t count = ::recv(socket.fd(), &byte, 1, MSG_DONTWAIT);
      if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      socket = Socket();
      if (board.status(other).has_ended) continue;
      const std::string message =
          fmt::format("rank {} was lost: its process has ended without a word; {}", other,
                      board.describe(other));
      if (board.report(rank_, message)) throw Error(Fault::kLost, message);
    }
  }

 private:
  int rank_;
  std::vector<std::pair<int, Socket>> others_;
};

// All who come until all ranks are there, one has come twice, or the time is over.
std::vector<std::pair<Hello, Socket>> receive_all(const Launch& launch, const Hello& mine,
                                                  Time end) {
  const Socket listening = listen_at(launch.port);
  if (!listening.is_open()) {
    fail_user("rank 0 cannot listen at port {} for the others: {}; set MASTER_PORT to a free port",
              launch.port, std::strerror(errno));
  }
  std::vector<std::pair<Hello, Socket>> come;
  come.emplace_back(mine, Socket());
  while (static_cast<int>(come.size()) < launch.size) {
    Socket socket = accept_at(listening, end);
    Hello hello;
    if (!socket.is_open()) break;
    if (!read_value(socket, hello, end) || hello.magic != kMagic) continue;
    come.emplace_back(hello, std::move(socket));
  }
  return come;
}

// Empty when the ranks can go on.
std::string fault_of(const Launch& launch, const std::vector<std::pair<Hello, Socket>>& come) {
  std::vector<Launch> roll;
  for (const auto& [hello, socket] : come) {
    Launch one = launch;
    one.rank = hello.rank;
    one.size = hello.size;
    roll.push_back(one);
  }
  const std::string wrong = check_roll(roll);
  if (wrong.empty()) return {};
  return fmt::format("{} at {}, by the variables of {}", wrong, address_of(launch),
                     name_of(launch.by));
}

using Come = std::vector<std::pair<Hello, Socket>>;

int num_on_host_of(const Hello& hello, const Come& come) {
  return static_cast<int>(std::count_if(
      come.begin(), come.end(), [&](const auto& other) { return other.first.host == hello.host; }));
}

// Memory of this process.
std::unique_ptr<Wires> lead_by_memory(const Launch& launch, Come& come) {
  auto world = std::make_unique<ShmWorld>(launch.size);
  auto ends = std::make_unique<Ends>(launch.rank);
  const Answer answer{.links = Answer::Links::kMemory,
                      .pid = ::getpid(),
                      .fd = world->fd(),
                      .num_local = launch.size};
  for (auto& [hello, socket] : come) {
    if (!socket.is_open()) continue;
    write_value(socket, answer);
    ends->add(hello.rank, std::move(socket));
  }
  return make_shm_wires(std::move(world), launch.rank, std::move(ends));
}

// Where one rank finds the others. A rank that came from this host's inside is reached by others
// where they have reached this process.
std::vector<Endpoint> endpoints_for(const Hello& told, const Socket& to, const Come& come) {
  std::vector<Endpoint> all(come.size());
  for (const auto& [hello, socket] : come) {
    if (!socket.is_open()) continue;
    const bool is_apart = told.host != hello.host && hello.host == come.front().first.host;
    Endpoint& endpoint = all[static_cast<std::size_t>(hello.rank)];
    endpoint = is_apart ? own_end_of(to) : peer_of(socket);
    endpoint.port = static_cast<std::uint16_t>(hello.port);
  }
  return all;
}

std::unique_ptr<Wires> lead_by_sockets(const Launch& launch, const Hello& mine, Come& come) {
  for (const auto& [hello, socket] : come) {
    if (!socket.is_open()) continue;
    write_value(socket,
                Answer{.links = Answer::Links::kSockets, .num_local = num_on_host_of(hello, come)});
    const std::vector<Endpoint> endpoints = endpoints_for(hello, socket, come);
    write_whole(socket, std::as_bytes(std::span(endpoints)));
  }
  const int num_local = num_on_host_of(mine, come);
  std::vector<Socket> sockets(come.size());
  for (auto& [hello, socket] : come) {
    sockets[static_cast<std::size_t>(hello.rank)] = std::move(socket);
  }
  return make_tcp_wires(std::move(sockets), launch.rank, num_local);
}

std::unique_ptr<Wires> lead(const Launch& launch, const Hello& mine, Time end) {
  Come come = receive_all(launch, mine, end);
  const std::string wrong = fault_of(launch, come);
  if (!wrong.empty()) {
    Answer answer;
    put(answer.error, wrong);
    for (const auto& [hello, socket] : come) {
      if (socket.is_open()) write_value(socket, answer);
    }
    fail_user("{}", wrong);
  }
  return num_on_host_of(mine, come) == launch.size ? lead_by_memory(launch, come)
                                                   : lead_by_sockets(launch, mine, come);
}

std::unique_ptr<Wires> follow_by_memory(const Launch& launch, const Answer& answer, Socket socket) {
  const std::string path = fmt::format("/proc/{}/fd/{}", answer.pid, answer.fd);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) fail_run("shared memory of rank 0, {}: {}", path, std::strerror(errno));
  auto world = std::make_unique<ShmWorld>(fd, launch.size);
  auto ends = std::make_unique<Ends>(launch.rank);
  ends->add(0, std::move(socket));
  return make_shm_wires(std::move(world), launch.rank, std::move(ends));
}

// To the ranks before this one; those behind it come to this one.
std::unique_ptr<Wires> follow_by_sockets(const Launch& launch, const Answer& answer, Socket first,
                                         const Socket& listening, Time end) {
  std::vector<Endpoint> all(static_cast<std::size_t>(launch.size));
  std::vector<Socket> sockets(all.size());
  if (!read_whole(first, std::as_writable_bytes(std::span(all)), end)) {
    fail_run("rank {} was not told where the others are: rank 0 has ended", launch.rank);
  }
  sockets[0] = std::move(first);
  for (int other = 1; other < launch.rank; ++other) {
    Socket& socket = sockets[static_cast<std::size_t>(other)];
    socket = connect_to(all[static_cast<std::size_t>(other)]);
    if (!socket.is_open()) {
      fail_run("rank {} cannot connect to rank {}, which listens at port {} of its host: {}",
               launch.rank, other, all[static_cast<std::size_t>(other)].port, std::strerror(errno));
    }
    write_value(socket, launch.rank);
  }
  for (int missing = launch.size - launch.rank - 1; missing > 0; --missing) {
    Socket socket = accept_at(listening, end);
    int other = -1;
    if (!socket.is_open() || !read_value(socket, other, end) || other <= launch.rank ||
        other >= launch.size) {
      fail_run("rank {} was not reached by {} of the ranks behind it", launch.rank, missing);
    }
    sockets[static_cast<std::size_t>(other)] = std::move(socket);
  }
  return make_tcp_wires(std::move(sockets), launch.rank, answer.num_local);
}

std::unique_ptr<Wires> follow(const Launch& launch, Hello mine, Time end) {
  const Socket listening = listen_at(0);
  mine.port = port_of(listening);
  Socket socket = connect_to(launch.host, launch.port);
  while (!socket.is_open() && Board::Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    socket = connect_to(launch.host, launch.port);
  }
  if (!socket.is_open()) {
    fail_user(
        "rank {} finds no rank 0 at {}, by the variables of {}; start all ranks, with the "
        "same MASTER_ADDR and MASTER_PORT",
        launch.rank, address_of(launch), name_of(launch.by));
  }
  write_value(socket, mine);
  constexpr double kAnswer = 10;  // after rank 0 has waited as long as this one
  const Time last = after(end, kAnswer);
  Answer answer;
  if (!read_value(socket, answer, last)) {
    fail_user(
        "rank {} has reached {}, but rank 0 of this run did not answer there; is the port "
        "another's? Set MASTER_PORT to a free one",
        launch.rank, address_of(launch));
  }
  switch (answer.links) {
    case Answer::Links::kNone: break;
    case Answer::Links::kMemory: return follow_by_memory(launch, answer, std::move(socket));
    case Answer::Links::kSockets:
      return follow_by_sockets(launch, answer, std::move(socket), listening, last);
  }
  throw Reported(Fault::kUser, answer.error.data());
}

}  // namespace

std::unique_ptr<Wires> meet(const Launch& launch, double deadline_s) {
  if (launch.host.empty()) {
    fail_user(
        "{} has started this rank but does not say where rank 0 is; set MASTER_ADDR and "
        "MASTER_PORT",
        name_of(launch.by));
  }
  Hello mine;
  mine.rank = launch.rank;
  mine.size = launch.size;
  put(mine.host, process_space_of(read_environment()));
  const Time end = after(Board::Clock::now(), deadline_s);
  return launch.rank == 0 ? lead(launch, mine, end) : follow(launch, mine, end);
}

}  // namespace orthant
