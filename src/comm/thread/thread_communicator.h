// ThreadCommunicator: a group of ranks that are threads of one process. Ranks post pointers; data
// moves straight from tensor to tensor, without memory in between. On GPUs the last rank to post
// queues the whole call.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/thread/shared_state.h"

namespace orthant {

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(SharedState& state, std::string name, std::vector<int> members, int rank,
                     int lane, const CommParts& parts);
  ThreadCommunicator(const ThreadCommunicator&) = delete;
  ThreadCommunicator& operator=(const ThreadCommunicator&) = delete;
  ~ThreadCommunicator() override;

  void sign_of_life(double busy_s) override { state_.board().sign(world_rank(), busy_s); }
  std::unique_ptr<Communicator> subgroup(std::string name, std::vector<int> members,
                                         int lane) override;

 private:
  using Lock = std::unique_lock<std::mutex>;
  // A call that waits: since when, and for whom as the board says.
  struct Waiting {
    const Call& call;
    Board::Clock::time_point start = Board::Clock::now();
    int noted = -1;
  };

  void do_start(const Call& call, Token token) override;
  void do_wait(const Call& call, Token token) override;

  void post_collective(const Call& call);
  void post_message(const Call& call);
  void wait_collective(const Call& call);
  void wait_message(const Call& call);

  Posted posted(const Call& call);
  void work(Slot& slot, Lock& lock);
  void move_chunk(const Slot& slot, std::int64_t chunk);
  void move_all(Slot& slot);
  void move_bytes(std::byte* to, const std::byte* from, std::int64_t bytes);
  void reduce(const Call& call, std::size_t num_outputs, std::int64_t count);
  // Calls `act` between what the others of a call have queued and what they will.
  template <class Others, class Act>
  void in_turn(const Others& others, Act&& act);
  std::int64_t chunk_elements(const Call& call) const;
  std::int64_t chunks_per_run(const Call& call) const;
  std::int64_t num_chunks(const Call& call) const;
  void finish(Slot& slot);
  // Sleeps until `changed`, or until it is time to judge `missing`, the ranks that have not come.
  void sleep(std::condition_variable& changed, Lock& lock, Waiting& waiting,
             std::span<const int> missing);
  Pair& pair_of(const Call& call);

  // Each poisons the world before it throws; none may hold a lock.
  [[noreturn]] void fail_diverged(const Call& mine, int peer, const Call& theirs);
  [[noreturn]] void fail_late(const Call& mine, std::span<const int> ranks);
  [[noreturn]] void fail_left(const Call& mine, int peer);
  [[noreturn]] void fail(const std::string& message);

  SharedState& state_;
  Group& group_;
  std::unique_ptr<DeviceMoves> moves_;  // null where tensors lie in host memory
  int num_started_ = 0;
  int exceptions_;
  std::vector<const std::byte*> inputs_;  // of the chunk that this rank moves, by group rank
  std::vector<std::byte*> outputs_;
};

}  // namespace orthant
