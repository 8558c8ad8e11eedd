#include "comm/mpi/mpi_wires.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

// The C interface alone. NOLINTNEXTLINE(readability-identifier-naming)
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

namespace orthant {
namespace {

// Data of a channel have its number as their tag.
constexpr int kSignTag = 30000;
constexpr int kMostChannels = 20000;

// Two messages each way, so that one can be filled or read while the other moves. It stays when
// its group goes: a receive that is posted may already hold the next group's first bytes.
class Pipe {
 public:
  Pipe(int peer, int channel, std::int64_t bytes) : peer_(peer), channel_(channel) {
    for (Slot& slot : out_) {
      slot.bytes.resize(static_cast<std::size_t>(bytes));
    }
    for (Slot& slot : in_) {
      slot.bytes.resize(static_cast<std::size_t>(bytes));
      post(slot);
    }
  }
  // Whoever ends MPI lets go of what is under way.
  void abandon() {
    for (Slot& slot : in_) {
      if (slot.request == MPI_REQUEST_NULL) continue;
      MPI_Cancel(&slot.request);
      MPI_Request_free(&slot.request);
    }
    for (Slot& slot : out_) {
      if (slot.request != MPI_REQUEST_NULL) MPI_Request_free(&slot.request);
    }
  }

  std::span<std::byte> room() {
    Slot& slot = out_[next_out_];
    int is_done = 1;
    MPI_Test(&slot.request, &is_done, MPI_STATUS_IGNORE);
    return is_done != 0 ? std::span(slot.bytes) : std::span<std::byte>();
  }
  void push(std::size_t bytes) {
    Slot& slot = out_[next_out_];
    MPI_Isend(slot.bytes.data(), static_cast<int>(bytes), MPI_BYTE, peer_, channel_, MPI_COMM_WORLD,
              &slot.request);
    next_out_ = 1 - next_out_;
  }
  std::span<const std::byte> front() {
    Slot& slot = in_[next_in_];
    if (slot.request != MPI_REQUEST_NULL) {
      int is_done = 0;
      MPI_Status status;
      MPI_Test(&slot.request, &is_done, &status);
      if (is_done == 0) return {};
      int count = 0;
      MPI_Get_count(&status, MPI_BYTE, &count);
      slot.end = static_cast<std::size_t>(count);
    }
    return std::span(slot.bytes).subspan(slot.begin, slot.end - slot.begin);
  }
  void pop(std::size_t bytes) {
    Slot& slot = in_[next_in_];
    slot.begin += bytes;
    if (slot.begin < slot.end) return;
    post(slot);
    next_in_ = 1 - next_in_;
  }

 private:
  struct Slot {
    std::vector<std::byte> bytes;
    MPI_Request request = MPI_REQUEST_NULL;
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  void post(Slot& slot) {
    slot.begin = 0;
    slot.end = 0;
    MPI_Irecv(slot.bytes.data(), static_cast<int>(slot.bytes.size()), MPI_BYTE, peer_, channel_,
              MPI_COMM_WORLD, &slot.request);
  }

  int peer_;
  int channel_;
  std::array<Slot, 2> out_;
  std::array<Slot, 2> in_;
  std::size_t next_out_ = 0;
  std::size_t next_in_ = 0;
};

// MPI gives no time to sleep by: polls grow rarer while nothing comes.
class Pause {
 public:
  void reset() { num_polls_ = 0; }
  void wait() {
    constexpr int kYields = 16;
    constexpr int kMostUs = 1000;
    if (++num_polls_ <= kYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(
          std::chrono::microseconds(std::min(kMostUs, 10 * (num_polls_ - kYields))));
    }
  }

 private:
  int num_polls_ = 0;
};

class MpiLink final : public Link {
 public:
  MpiLink(Pipe& pipe, Pause& pause) : pipe_(pipe), pause_(pause) {}
  std::span<std::byte> room() override { return pipe_.room(); }
  void push(std::size_t bytes) override {
    pause_.reset();
    pipe_.push(bytes);
  }
  std::span<const std::byte> front() override { return pipe_.front(); }
  void pop(std::size_t bytes) override {
    pause_.reset();
    pipe_.pop(bytes);
  }

 private:
  Pipe& pipe_;
  Pause& pause_;
};

// What ranks tell each other about themselves, so that every board has all of them.
class Signs {
 public:
  Signs(Board& board, int rank) : board_(board), rank_(rank) {
    sends_.resize(static_cast<std::size_t>(board.size()), MPI_REQUEST_NULL);
    outgoing_.resize(sends_.size());
    post();
  }
  // Not more often than is needed to hold the deadline off.
  void send_now_and_then() {
    constexpr double kMostS = 1;
    constexpr double kShare = 8;
    const double every_s = std::min(kMostS, board_.deadline_s() / kShare);
    if (Board::Clock::now() >= after(sent_, every_s)) send();
  }
  void send() {
    sent_ = Board::Clock::now();
    for (int peer = 0; peer < board_.size(); ++peer) {
      if (peer == rank_) continue;
      const auto at = static_cast<std::size_t>(peer);
      int is_done = 1;
      MPI_Test(&sends_[at], &is_done, MPI_STATUS_IGNORE);
      if (is_done == 0) continue;
      outgoing_[at] = board_.status(rank_);
      MPI_Isend(&outgoing_[at], sizeof(RankStatus), MPI_BYTE, peer, kSignTag, MPI_COMM_WORLD,
                &sends_[at]);
    }
  }
  void receive() {
    for (;;) {
      int is_done = 0;
      MPI_Status status;
      MPI_Test(&receive_, &is_done, &status);
      if (is_done == 0) return;
      board_.note(status.MPI_SOURCE, incoming_);
      post();
    }
  }
  void abandon() {
    MPI_Cancel(&receive_);
    MPI_Request_free(&receive_);
    for (MPI_Request& request : sends_) {
      if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
    }
  }

 private:
  void post() {
    MPI_Irecv(&incoming_, sizeof(RankStatus), MPI_BYTE, MPI_ANY_SOURCE, kSignTag, MPI_COMM_WORLD,
              &receive_);
  }
  Board& board_;
  int rank_;
  Board::Clock::time_point sent_ = Board::Clock::now();
  std::vector<MPI_Request> sends_;
  std::vector<RankStatus> outgoing_;
  RankStatus incoming_;
  MPI_Request receive_ = MPI_REQUEST_NULL;
};

// MPI, which this starts, and what it says about this rank.
class Mpi {
 public:
  explicit Mpi(const Launch& launch) {
    int given = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &given);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    MPI_Comm local = MPI_COMM_NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &local);
    MPI_Comm_size(local, &num_local_);
    MPI_Comm_free(&local);
    if ((launch.size == 0 || launch.size == size_) && launch.rank == rank_) return;
    MPI_Finalize();
    fail_user(
        "the variables of {} say rank {} of {}, MPI says rank {} of {}; start the ranks with "
        "the mpirun of the MPI that this binary was built with, or with srun --mpi=pmix",
        name_of(launch.by), launch.rank, launch.size, rank_, size_);
  }

  int rank() const { return rank_; }
  int size() const { return size_; }
  int num_local() const { return num_local_; }

 private:
  int rank_ = 0;
  int size_ = 1;
  int num_local_ = 1;
};

class MpiWires final : public Wires {
 public:
  explicit MpiWires(const Launch& launch)
      : mpi_(launch),
        board_memory_(static_cast<std::size_t>(Board::bytes(mpi_.size())) / sizeof(std::uint64_t)),
        board_(reinterpret_cast<std::byte*>(board_memory_.data()), mpi_.size(), Board::Use::kReset),
        signs_(board_, mpi_.rank()) {}
  MpiWires(const MpiWires&) = delete;
  MpiWires& operator=(const MpiWires&) = delete;
  ~MpiWires() override {
    signs_.abandon();
    for (auto& [key, pipe] : pipes_) {
      pipe.abandon();
    }
    MPI_Finalize();  // before the memory of what is under way goes
  }

  int rank() const override { return mpi_.rank(); }
  int size() const override { return mpi_.size(); }
  int num_local() const override { return mpi_.num_local(); }
  // mpirun may bind each rank to cores of its own.
  int num_cores() const override { return static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)); }

  std::unique_ptr<Link> link(int peer, int channel, int share) override {
    ORTHANT_CHECK(channel < kMostChannels, "channel {} of MPI; there are {}", channel,
                  kMostChannels);
    auto found = pipes_.find({peer, channel});
    if (found == pipes_.end()) {
      found = pipes_.try_emplace({peer, channel}, peer, channel, message_bytes(share)).first;
    }
    return std::make_unique<MpiLink>(found->second, pause_);
  }
  Transport transport() const override { return Transport::kMpi; }
  Board& board() override { return board_; }

  std::uint32_t ticket() override { return 0; }
  void sleep(std::uint32_t /*ticket*/, Board::Clock::time_point /*until*/) override {
    signs_.receive();
    signs_.send_now_and_then();
    pause_.wait();
  }
  void announce_sign() override {
    const bool is_long = board_.status(rank()).busy_s > board_.deadline_s() / 2;
    is_long ? signs_.send() : signs_.send_now_and_then();
  }
  void announce_end() override { signs_.send(); }
  void announce_failure(Fault fault) noexcept override {
    fmt::print(stderr, "orthant: {}\n", board_.failure());
    MPI_Abort(MPI_COMM_WORLD, static_cast<int>(fault));
  }

 private:
  Mpi mpi_;
  std::vector<std::uint64_t> board_memory_;
  Board board_;
  Signs signs_;
  Pause pause_;
  std::map<std::pair<int, int>, Pipe> pipes_;  // by peer and channel
};

}  // namespace

std::unique_ptr<Wires> make_mpi_wires(const Launch& launch) {
  return std::make_unique<MpiWires>(launch);
}

}  // namespace orthant
