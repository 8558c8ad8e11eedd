#include "comm/cuda/queue_watch.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "mem/cuda_check.h"

namespace orthant {

QueueWatch::QueueWatch(StreamRank& rank, std::function<void()> release,
                       std::function<std::optional<BrokenLink>()> find_broken)
    : rank_(rank),
      release_(std::move(release)),
      find_broken_(std::move(find_broken)) {
  ORTHANT_CUDA(cudaGetDevice(&gpu_));
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

QueueWatch::~QueueWatch() {
  thread_.request_stop();
  thread_.join();
}

void QueueWatch::add(CallQueue& queue) {
  const std::lock_guard lock(mutex_);
  queues_.push_back(&queue);
}

void QueueWatch::remove(CallQueue& queue) {
  const std::lock_guard lock(mutex_);
  std::erase(queues_, &queue);
}

void QueueWatch::run(const std::stop_token& stop) {
  constexpr std::chrono::milliseconds kEvery(20);
  if (cudaSetDevice(gpu_) != cudaSuccess) return;
  while (!stop.stop_requested()) {
    look();
    std::this_thread::sleep_for(kEvery);
  }
}

void QueueWatch::look() {
  const std::lock_guard lock(mutex_);
  if (rank_.wires().board().has_failed()) {
    if (!end_.joinable()) end_ = std::jthread([this](const std::stop_token& stop) { end(stop); });
    return release_();
  }
  for (CallQueue* queue : queues_) {
    const CallQueue::Look seen = queue->look();
    if (seen.has_moved) rank_.wires().board().touch(rank_.rank());
    if (seen.at_work) fail_if_late(*queue, seen);
  }
  fail_if_broken();
}

// Under a launcher that is not ours nobody else ends a process whose GPU stands still.
void QueueWatch::end(const std::stop_token& stop) {
  constexpr double kMostGrace = 10;
  const double deadline_s = rank_.deadline_s();
  const double grace_s = deadline_s > 0 ? std::min(kMostGrace, deadline_s) : kMostGrace;
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  stopped.wait_for(lock, stop, std::chrono::duration<double>(grace_s), [] { return false; });
  if (stop.stop_requested()) return;
  fmt::print(stderr, "orthant: {}; {:g} s later the GPU of rank {} still waits, so it ends\n",
             rank_.wires().board().failure(), grace_s, rank_.rank());
  std::_Exit(static_cast<int>(Fault::kLost));
}

void QueueWatch::fail_if_late(const CallQueue& queue, const CallQueue::Look& seen) {
  Board& board = rank_.wires().board();
  const double deadline_s = rank_.deadline_s();
  const Board::Verdict verdict = board.judge(rank_.rank(), queue.peers(), seen.since, deadline_s);
  if (!verdict.is_overdue) return;
  fail(fmt::format("{} waited {:g} s on its GPU in {}", queue.title(), deadline_s,
                   text_of(seen.at_work->kind, seen.at_work->where)),
       verdict.ranks);
}

// The end of a process breaks its connections. A host that does not wait for its GPU hears of the
// end, and says more.
void QueueWatch::fail_if_broken() {
  constexpr double kHearsWithin = 2;
  const std::optional<BrokenLink> broken = find_broken_();
  if (!broken) return broken_since_.reset();
  const Board::Clock::time_point now = Board::Clock::now();
  if (!broken_since_) broken_since_ = now;
  if (now < after(*broken_since_, kHearsWithin)) return;
  fail(fmt::format("{} has lost its connections on the GPU: {}", broken->title, broken->why),
       broken->peers);
}

void QueueWatch::fail(const std::string& what, std::span<const int> others) {
  Board& board = rank_.wires().board();
  std::vector<std::string> descriptions;
  for (const int other : others) {
    descriptions.push_back(board.describe(other));
  }
  board.fail(rank_.rank(), fmt::format("{}; {}", what, join(descriptions)));
  rank_.wires().wake_all();
}

}  // namespace orthant
