#include "comm/meet.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "comm/shm/shm_world.h"

namespace orthant {
namespace {

using Time = Board::Clock::time_point;

class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_;
};

// What a rank says when it comes, and what it is told.
constexpr std::uint64_t kMagic = 0x6f727468616e7431ull;
struct Hello {
  std::uint64_t magic = kMagic;
  int rank = 0;
  int size = 0;
  std::array<char, 128> host{};  // equal where memory can be shared
};
struct Answer {
  int pid = 0;  // of rank 0, which has the memory as its file `fd`; 0: `error` says why not
  int fd = -1;
  std::array<char, 1000> error{};
};

template <std::size_t N>
void put(std::array<char, N>& to, const std::string& text) {
  std::copy_n(text.begin(), std::min(text.size(), N - 1), to.begin());
}

int left_ms(Time end) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(end - Board::Clock::now());
  constexpr std::int64_t kMost = 1'000'000;
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, kMost));
}

// The whole of a value, or false.
template <class T>
bool read_whole(int fd, T& value, Time end) {
  const auto bytes = std::as_writable_bytes(std::span(&value, 1));
  for (std::size_t done = 0; done < bytes.size();) {
    pollfd ready = {.fd = fd, .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, left_ms(end)) <= 0) return false;
    const ssize_t count = ::recv(fd, bytes.data() + done, bytes.size() - done, 0);
    if (count <= 0) return false;
    done += static_cast<std::size_t>(count);
  }
  return true;
}

template <class T>
void write_whole(int fd, const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t count = ::send(fd, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (count <= 0) return;  // it has gone, which its own end will show
    done += static_cast<std::size_t>(count);
  }
}

// Processes with the same text can open each other's files.
std::string host_name() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id") >> std::ws, boot);
  std::array<char, 64> space{};
  const ssize_t count = ::readlink("/proc/self/ns/pid", space.data(), space.size() - 1);
  return boot + " " +
         std::string(space.data(), static_cast<std::size_t>(std::max<ssize_t>(0, count)));
}

std::string address_of(const Launch& launch) {
  return fmt::format("{}:{}", launch.host, launch.port);
}

Socket listen_at(const Launch& launch) {
  Socket socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  const int no = 0;
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  ::setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_any;
  address.sin6_port = htons(static_cast<std::uint16_t>(launch.port));
  if (!socket.is_open() ||
      ::bind(socket.fd(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(socket.fd(), SOMAXCONN) != 0) {
    fail_user("rank 0 cannot listen at port {} for the others: {}; set MASTER_PORT to a free port",
              launch.port, std::strerror(errno));
  }
  return socket;
}

Socket try_connect(const Launch& launch) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(launch.host.c_str(), fmt::format("{}", launch.port).c_str(), &hints, &found) !=
      0) {
    return Socket();
  }
  Socket socket;
  for (const addrinfo* at = found; at != nullptr && !socket.is_open(); at = at->ai_next) {
    Socket next(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (next.is_open() && ::connect(next.fd(), at->ai_addr, at->ai_addrlen) == 0) {
      socket = std::move(next);
    }
  }
  ::freeaddrinfo(found);
  return socket;
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
  const Socket listening = listen_at(launch);
  std::vector<std::pair<Hello, Socket>> come;
  come.emplace_back(mine, Socket());
  while (static_cast<int>(come.size()) < launch.size) {
    pollfd ready = {.fd = listening.fd(), .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, left_ms(end)) <= 0) break;
    Socket socket(::accept4(listening.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    Hello hello;
    if (!read_whole(socket.fd(), hello, end) || hello.magic != kMagic) continue;
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
  if (!wrong.empty()) {
    return fmt::format("{} at {}, by the variables of {}", wrong, address_of(launch),
                       name_of(launch.by));
  }
  for (const auto& [hello, socket] : come) {
    if (hello.host != come.front().first.host) {
      return fmt::format(
          "rank {} is not on the host of rank 0; ranks on several hosts need MPI: "
          "start them with mpirun or srun and a binary that has it",
          hello.rank);
    }
  }
  return {};
}

std::unique_ptr<Wires> lead(const Launch& launch, const Hello& mine, Time end) {
  auto come = receive_all(launch, mine, end);
  Answer answer;
  const std::string wrong = fault_of(launch, come);
  put(answer.error, wrong);
  auto world = wrong.empty() ? std::make_unique<ShmWorld>(launch.size) : nullptr;
  if (world != nullptr) {
    answer.pid = ::getpid();
    answer.fd = world->fd();
  }
  auto ends = std::make_unique<Ends>(launch.rank);
  for (auto& [hello, socket] : come) {
    if (!socket.is_open()) continue;
    write_whole(socket.fd(), answer);
    ends->add(hello.rank, std::move(socket));
  }
  if (world == nullptr) fail_user("{}", wrong);
  return make_shm_wires(std::move(world), launch.rank, std::move(ends));
}

std::unique_ptr<Wires> follow(const Launch& launch, const Hello& mine, Time end) {
  Socket socket = try_connect(launch);
  while (!socket.is_open() && Board::Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    socket = try_connect(launch);
  }
  Answer answer;
  if (!socket.is_open()) {
    fail_user(
        "rank {} finds no rank 0 at {}, by the variables of {}; start all ranks, with the "
        "same MASTER_ADDR and MASTER_PORT",
        launch.rank, address_of(launch), name_of(launch.by));
  }
  write_whole(socket.fd(), mine);
  constexpr double kAnswer = 10;  // after rank 0 has waited as long as this one
  if (!read_whole(socket.fd(), answer, after(end, kAnswer))) {
    fail_user(
        "rank {} has reached {}, but rank 0 of this run did not answer there; is the port "
        "another's? Set MASTER_PORT to a free one",
        launch.rank, address_of(launch));
  }
  if (answer.pid == 0) throw Reported(Fault::kUser, answer.error.data());
  const std::string path = fmt::format("/proc/{}/fd/{}", answer.pid, answer.fd);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) fail_run("shared memory of rank 0, {}: {}", path, std::strerror(errno));
  auto world = std::make_unique<ShmWorld>(fd, launch.size);
  auto ends = std::make_unique<Ends>(launch.rank);
  ends->add(0, std::move(socket));
  return make_shm_wires(std::move(world), launch.rank, std::move(ends));
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
  put(mine.host, host_name());
  const Time end = after(Board::Clock::now(), deadline_s);
  return launch.rank == 0 ? lead(launch, mine, end) : follow(launch, mine, end);
}

}  // namespace orthant
