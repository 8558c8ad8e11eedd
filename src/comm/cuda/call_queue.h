// CallQueue: a stream for the calls of one kind between the same ranks, in their order, beside the
// stream of the ops. Its state may be looked at by another thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include "comm/board.h"
#include "comm/call.h"

namespace orthant {

class CallQueue {
 public:
  // `peers`: world ranks of the others; `title` names this rank and group in messages.
  CallQueue(cudaStream_t ops, std::vector<int> peers, std::string title);
  ~CallQueue();
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  const std::vector<int>& peers() const { return peers_; }
  const std::string& title() const { return title_; }
  cudaStream_t stream() const { return stream_; }

  void post(const Call& call);  // it comes after what the ops have queued so far
  void begin();                 // the stream goes on when the oldest call that is not queued may
  void end();                   // that call is queued
  void wait(const Call& call);  // the ops go on after that call, which is queued

  // What the GPU has done since the last look, for a thread that watches.
  struct Look {
    bool has_moved = false;  // a call has begun or ended
    // The call that the GPU is in, and since when at the latest it has been there.
    std::optional<Call> at_work;
    Board::Clock::time_point since{};
  };
  Look look();

 private:
  struct Slot {
    cudaEvent_t posted = nullptr;
    cudaEvent_t done = nullptr;
    Call call{};
    bool is_waited_for = false;
  };
  Slot& slot(std::int64_t number) {
    return slots_[static_cast<std::size_t>(number) % slots_.size()];
  }
  // The first call whose slot is still needed.
  std::int64_t oldest() const { return std::min(waited_, ended_); }
  void see_ends();
  void grow();

  cudaStream_t ops_;
  std::vector<int> peers_;
  std::string title_;
  cudaStream_t stream_ = nullptr;
  std::mutex mutex_;
  std::vector<Slot> slots_;
  // Calls so far; a slot is taken again when its call has been waited for and has ended.
  std::int64_t posted_ = 0;
  std::int64_t queued_ = 0;
  std::int64_t waited_ = 0;
  std::int64_t ended_ = 0;  // on the GPU, as was seen
  bool has_moved_ = false;  // a call was seen to end since the last look
  bool has_begun_ = false;  // call number ended_
  Board::Clock::time_point begun_{};
};

}  // namespace orthant
