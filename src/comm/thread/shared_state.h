// What the ranks of a ThreadWorld share: the groups with their posted calls, and the board.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/board.h"
#include "comm/device_moves.h"

namespace orthant {

struct Posted {
  Call call{};
  bool is_here = false;
  // Where the tensors lie on a GPU: who queues for this rank, and after what.
  DeviceMoves* moves = nullptr;
  void* point = nullptr;
};

// One collective, from the first rank that posts it until it is done. Any waiting rank works on
// its chunks, so that it ends once all have posted, whatever else they do.
struct Slot {
  std::int64_t sequence = -1;  // -1: free
  int num_posted = 0;
  int first_rank = 0;          // who posted first
  std::vector<Posted> posted;  // by group rank
  std::int64_t num_chunks = 0;
  std::int64_t next_chunk = 0;
  std::int64_t done_chunks = 0;
};

// First in, first out; keeps its memory.
class MessageQueue {
 public:
  bool empty() const { return size_ == 0; }
  const Posted& front() const { return ring_[first_]; }
  void push(const Posted& message);
  void pop();

 private:
  std::vector<Posted> ring_;
  std::size_t first_ = 0;
  std::size_t size_ = 0;
};

// The messages from one rank to another. One of the two queues is always empty.
struct Pair {
  std::mutex mutex;
  std::condition_variable changed;
  MessageQueue sends;
  MessageQueue recvs;
  std::int64_t num_moved = 0;
};

struct Group {
  Group(std::string group_name, std::vector<int> world_ranks);

  Slot* find(std::int64_t sequence);  // null when it is not posted or is done
  Slot& find_or_take(std::int64_t sequence);
  Pair& pair(int from, int to) {
    return pairs[static_cast<std::size_t>(from) * members.size() + static_cast<std::size_t>(to)];
  }
  void leave(int rank);  // the destructor of a communicator

  const std::string name;
  const std::vector<int> members;  // world ranks
  std::vector<char> has_joined;    // by group rank; guarded by the registry

  std::mutex mutex;  // of the collectives
  std::condition_variable changed;
  std::vector<std::unique_ptr<Slot>> slots;
  int num_working = 0;                      // ranks that are moving data of a slot
  std::vector<std::atomic<bool>> has_left;  // by group rank: will post nothing more
  std::vector<Pair> pairs;
};

class SharedState {
 public:
  SharedState(int size, double deadline_s);

  double deadline_s() const { return deadline_s_; }
  Board& board() { return board_; }

  // The n-th group of this name and members that a rank joins is the same for all of them.
  Group& join(const std::string& name, const std::vector<int>& members, int world_rank);

  // Keeps the first failure. After return no thread touches memory of posted calls any more.
  void fail(int world_rank, const std::string& why) noexcept;
  bool has_failed() const { return board_.has_failed(); }
  [[noreturn]] void throw_failed();

 private:
  void wake_all_and_wait_until_idle();

  double deadline_s_;
  std::vector<std::uint64_t> board_memory_;
  Board board_;
  std::mutex registry_mutex_;
  std::vector<std::unique_ptr<Group>> groups_;
};

}  // namespace orthant
