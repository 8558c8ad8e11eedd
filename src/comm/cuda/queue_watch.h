// QueueWatch: a thread that looks at the calls a rank's GPU is in. It gives the signs of life of
// the GPU, finds calls that pass the deadline there and connections that break, and after a failure
// lets go of what the GPU waits for, since a host that waits for its GPU sees none of them. A
// second thread looks at the first, which may wait for CUDA or NCCL itself, and ends a process
// whose GPU does not let go.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/cuda/call_queue.h"
#include "comm/stream/stream_rank.h"

namespace orthant {

// A connection that what moves data has given up.
struct BrokenLink {
  std::string title;       // "rank 5 (tp group 4,5)"
  std::vector<int> peers;  // world ranks of the others, where they may be why
  std::string why;
};

class QueueWatch {
 public:
  // Both are called by the thread, never while add() or remove() runs: `release` again and again
  // after a failure, `find_broken` until then.
  QueueWatch(StreamRank& rank, std::function<void()> release,
             std::function<std::optional<BrokenLink>()> find_broken);
  ~QueueWatch();
  QueueWatch(const QueueWatch&) = delete;
  QueueWatch& operator=(const QueueWatch&) = delete;

  void add(CallQueue& queue);
  void remove(CallQueue& queue);

 private:
  void run(const std::stop_token& stop);
  void look();
  void guard(const std::stop_token& stop);
  [[noreturn]] void end(double grace_s) const;
  void fail_if_late(const CallQueue& queue, const CallQueue::Look& seen);
  void fail_if_broken();
  void fail_stuck();
  void fail(const std::string& what, std::span<const int> others);

  StreamRank& rank_;
  std::function<void()> release_;
  std::function<std::optional<BrokenLink>()> find_broken_;
  std::optional<Board::Clock::time_point> broken_since_;
  int gpu_ = 0;
  std::mutex mutex_;
  std::vector<CallQueue*> queues_;
  std::atomic<std::int64_t> num_looks_{0};
  std::atomic<bool> is_at_work_{false};  // at the last look the GPU was in some call
  std::jthread guard_;                   // is stopped when the thread has ended
  std::jthread thread_;
};

// A queue and its place in a watch.
class WatchedQueue {
 public:
  WatchedQueue(QueueWatch& watch, cudaStream_t ops, std::vector<int> peers, std::string title)
      : watch_(watch),
        queue_(ops, std::move(peers), std::move(title)) {
    watch_.add(queue_);
  }
  ~WatchedQueue() { watch_.remove(queue_); }
  WatchedQueue(const WatchedQueue&) = delete;
  WatchedQueue& operator=(const WatchedQueue&) = delete;
  CallQueue* operator->() { return &queue_; }
  CallQueue& operator*() { return queue_; }

 private:
  QueueWatch& watch_;
  CallQueue queue_;
};

}  // namespace orthant
