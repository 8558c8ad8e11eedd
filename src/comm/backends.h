// The transports: threads of one process, and meta, which moves nothing.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace orthant {

// The world of one rank of a dry run: any size, no peers.
std::unique_ptr<Communicator> make_meta_world(int rank, int size, const CommParts& parts);

// What the ranks of one process share. When one fails, the others' calls throw "rank N failed:
// ...".
class ThreadWorld {
 public:
  ThreadWorld(int size, double deadline_s);
  ~ThreadWorld();
  ThreadWorld(const ThreadWorld&) = delete;
  ThreadWorld& operator=(const ThreadWorld&) = delete;

  int size() const;
  double deadline_s() const;
  std::unique_ptr<Communicator> join(int rank, const CommParts& parts);
  // After return no thread touches tensors of started calls any more. A rank that throws is
  // poisoned by run_rank_threads; its memory must outlive its communicators.
  void poison(int rank, const std::string& why);
  // What ranks were last seen at: "rank 4 is in all_gather 'h.6.attn' (tp) and did not stop".
  std::string describe(const std::vector<int>& ranks) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Runs body(rank) on `size` threads. The first error is thrown again after all have stopped; errors
// that only say that another rank failed are not first. When a rank has not stopped min(10 s,
// deadline) after the first error, this says the error and ends the process with its status.
void run_rank_threads(ThreadWorld& world, const std::function<void(int rank)>& body);

}  // namespace orthant
