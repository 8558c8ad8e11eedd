// RankBed: what one rank needs to call collectives, and worlds of such ranks: threads, processes
// that share memory or have a socket between every two, and, in a test program that mpirun has
// started, MPI.
#pragma once

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "comm/backends.h"
#include "comm/launch.h"
#include "comm/process_world.h"
#include "comm/shm/shm_world.h"
#include "comm/tcp/tcp_wires.h"
#include "mem/arena.h"

namespace orthant {

struct RankBed {
  explicit RankBed(ThreadWorld& world, int rank)
      : comm(world.join(rank, {.ledger = ledger, .in_flight = in_flight})) {}
  explicit RankBed(ProcessWorld& world)
      : comm(world.join({.ledger = ledger, .in_flight = in_flight})) {}
  RankBed(int rank, int size)
      : comm(make_meta_world(rank, size, {.ledger = ledger, .in_flight = in_flight})) {}

  Tensor alloc(const Shape& shape, DType dtype) {
    return arena.alloc(shape, dtype, MemClass::kWork);
  }

  Ledger ledger;
  InFlight in_flight;
  std::unique_ptr<Device> device = make_host_device();
  Arena arena{*device, in_flight, "test", std::int64_t{1} << 26};
  std::unique_ptr<Communicator> comm;
};

using RankBody = std::function<void(RankBed&)>;

// Runs body(bed) on every rank of a world of threads.
inline void run_ranks(int size, double deadline_s, const RankBody& body) {
  ThreadWorld world(size, deadline_s);
  run_rank_threads(world, [&](int rank) {
    RankBed bed(world, rank);
    body(bed);
  });
}

using WorldBody = std::function<void(ProcessWorld&)>;

// The status of a process that ran body(world): 0, or 1 after an error or a failed expectation.
inline int run_process_rank(int fd, int size, int rank, double deadline_s, const WorldBody& body) {
  try {
    ProcessWorld world(make_shm_wires(std::make_unique<ShmWorld>(::dup(fd), size), rank, nullptr),
                       deadline_s);
    world.run([&] { body(world); });
  } catch (const Error&) {
    return 1;  // it is on the board
  }
  return testing::Test::HasFailure() ? 1 : 0;
}

// Runs body(world) on processes: what they change in memory, nobody else sees. Their first failure
// is thrown as the board has it.
inline void run_processes(int size, double deadline_s, const WorldBody& body) {
  ShmWorld world(size);
  std::vector<pid_t> pids;
  std::fflush(nullptr);
  for (int rank = 0; rank < size; ++rank) {
    pids.push_back(::fork());
    if (pids.back() != 0) continue;
    ::alarm(100);
    const int status = run_process_rank(world.fd(), size, rank, deadline_s, body);
    std::fflush(nullptr);
    std::_Exit(status);
  }
  bool all_well = true;
  int left_looks = 300;  // of 10 ms, from the first failure until who hangs is killed
  for (int left = size; left > 0;) {
    int raw = 0;
    const pid_t pid = ::waitpid(-1, &raw, WNOHANG);
    if (pid == 0) {
      ::usleep(10'000);
      if (!world.board().has_failed() || --left_looks != 0) continue;
      for (const pid_t other : pids) {
        if (other > 0) ::kill(other, SIGKILL);
      }
      continue;
    }
    --left;
    all_well = all_well && WIFEXITED(raw) && WEXITSTATUS(raw) == 0;
    const auto rank = static_cast<int>(std::find(pids.begin(), pids.end(), pid) - pids.begin());
    pids[static_cast<std::size_t>(rank)] = 0;
    if (!WIFSIGNALED(raw)) continue;
    world.board().report(-1,
                         fmt::format("rank {} was killed; {}", rank, world.board().describe(rank)));
    world.ring_all();
  }
  if (world.board().has_failed()) throw Error(Fault::kLost, world.board().failure());
  EXPECT_TRUE(all_well) << "an expectation of a process failed";
}

inline void run_rank_processes(int size, double deadline_s, const RankBody& body) {
  run_processes(size, deadline_s, [&body](ProcessWorld& world) {
    RankBed bed(world);
    body(bed);
  });
}

// Runs act(rank, world) on processes as if each were on a host of its own. Returns their statuses;
// 1 is an error, which is said, or a failed expectation.
inline std::vector<int> run_apart(int size, double deadline_s,
                                  const std::function<void(int, ProcessWorld&)>& act) {
  std::vector<std::array<int, 2>> ends(static_cast<std::size_t>(size * size), {-1, -1});
  const auto end_of = [&](int rank, int peer) -> int& {
    const bool is_low = rank < peer;
    const int pair = is_low ? rank * size + peer : peer * size + rank;
    return ends[static_cast<std::size_t>(pair)][is_low ? 0 : 1];
  };
  for (int low = 0; low < size; ++low) {
    for (int high = low + 1; high < size; ++high) {
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0,
                             ends[static_cast<std::size_t>(low * size + high)].data()),
                0);
    }
  }
  std::vector<pid_t> pids;
  std::fflush(nullptr);
  for (int rank = 0; rank < size; ++rank) {
    pids.push_back(::fork());
    if (pids.back() != 0) continue;
    ::alarm(100);
    std::vector<Socket> sockets(static_cast<std::size_t>(size));
    for (int peer = 0; peer < size; ++peer) {
      if (peer != rank) sockets[static_cast<std::size_t>(peer)] = Socket(end_of(rank, peer));
    }
    for (const auto& pair : ends) {
      for (const int fd : pair) {
        const bool is_own = std::any_of(sockets.begin(), sockets.end(),
                                        [fd](const Socket& socket) { return socket.fd() == fd; });
        if (!is_own && fd >= 0) ::close(fd);
      }
    }
    int status = 0;
    try {
      ProcessWorld world(make_tcp_wires(std::move(sockets), rank, 1), deadline_s);
      world.run([&] { act(rank, world); });
    } catch (const Reported&) {
      status = 1;
    } catch (const Error& error) {
      fmt::print(stderr, "{}\n", error.what());
      status = 1;
    }
    if (testing::Test::HasFailure()) status = 1;
    std::fflush(nullptr);
    std::_Exit(status);
  }
  for (const auto& pair : ends) {
    for (const int fd : pair) {
      if (fd >= 0) ::close(fd);
    }
  }
  std::vector<int> statuses;
  for (const pid_t pid : pids) {
    int raw = 0;
    ::waitpid(pid, &raw, 0);
    statuses.push_back(WIFSIGNALED(raw) ? 128 + WTERMSIG(raw) : WEXITSTATUS(raw));
  }
  return statuses;
}

// The world that mpirun has started this test program in; null without it.
inline ProcessWorld* mpi_world() {
  static const std::unique_ptr<ProcessWorld> kWorld = [] {
    const auto launch = detect_launch(read_environment());
    return launch ? join_process_world(*launch, 60) : nullptr;
  }();
  return kWorld.get();
}

inline std::vector<Transport> transports() {
  if (mpi_world() != nullptr) return {Transport::kMpi};
  return {Transport::kThreads, Transport::kSharedMemory, Transport::kSockets};
}

// Under mpirun only worlds of its own size can be run; others are passed over.
inline void run_ranks(Transport transport, int size, double deadline_s, const RankBody& body) {
  switch (transport) {
    case Transport::kThreads: return run_ranks(size, deadline_s, body);
    case Transport::kSharedMemory: return run_rank_processes(size, deadline_s, body);
    case Transport::kSockets: {
      const auto statuses = run_apart(size, deadline_s, [&body](int /*rank*/, ProcessWorld& world) {
        RankBed bed(world);
        body(bed);
      });
      EXPECT_EQ(statuses, std::vector<int>(static_cast<std::size_t>(size)));
      return;
    }
    case Transport::kMpi:
      if (mpi_world()->size() != size) return;
      mpi_world()->run([&] {
        RankBed bed(*mpi_world());
        body(bed);
      });
  }
}

inline void on_all_transports(int size, const RankBody& body) {
  for (const Transport transport : transports()) {
    run_ranks(transport, size, 60, body);
  }
}

// The message of the Error that `act` throws; empty when it throws none.
inline std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace orthant
