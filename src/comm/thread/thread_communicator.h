// ThreadCommunicator: a group of ranks that are threads of one process. Ranks post pointers; data
// moves straight from tensor to tensor, without memory in between.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/thread/shared_state.h"

namespace orthant {

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(SharedState& state, std::string name, std::vector<int> members, int rank,
                     int lane, const CommParts& parts);
  ~ThreadCommunicator() override;

  std::unique_ptr<Communicator> subgroup(std::string name, std::vector<int> members,
                                         int lane) override;

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Time = std::chrono::steady_clock::time_point;

  void do_start(const Call& call, Token token) override;
  void do_wait(const Call& call, Token token) override;

  void post_collective(const Posted& posted);
  void post_message(const Posted& posted);
  void wait_collective(const Call& call);
  void wait_message(const Call& call);

  void work(Slot& slot, Lock& lock);
  void move_chunk(const Slot& slot, std::int64_t chunk);
  void finish(Slot& slot);
  // False when the deadline passed first.
  bool sleep(std::condition_variable& changed, Lock& lock, Time deadline, const Posted& posted);
  int world_rank() const { return members()[static_cast<std::size_t>(rank())]; }
  Pair& pair_of(const Call& call);

  // Each poisons the world before it throws; none may hold a lock.
  [[noreturn]] void fail_diverged(const Posted& mine, int peer, const Posted& theirs);
  [[noreturn]] void fail_late(const Posted& mine, const std::vector<int>& missing);
  [[noreturn]] void fail_left(const Posted& mine, int peer);
  [[noreturn]] void fail(const std::string& message);

  SharedState& state_;
  Group& group_;
  int num_started_ = 0;
  int exceptions_;
  std::vector<const std::byte*> inputs_;  // of the chunk that this rank moves, by group rank
  std::vector<std::byte*> outputs_;
};

}  // namespace orthant
