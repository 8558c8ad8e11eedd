#include "comm/cuda/queue_watch.h"

#include <chrono>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "mem/cuda_check.h"

namespace orthant {

QueueWatch::QueueWatch(StreamRank& rank, std::function<void()> release)
    : rank_(rank),
      release_(std::move(release)) {
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
  if (rank_.wires().board().has_failed()) return release_();
  for (CallQueue* queue : queues_) {
    const CallQueue::Look seen = queue->look();
    if (seen.has_moved) rank_.wires().board().touch(rank_.rank());
    if (seen.at_work) fail_if_late(*queue, seen);
  }
}

void QueueWatch::fail_if_late(const CallQueue& queue, const CallQueue::Look& seen) {
  Board& board = rank_.wires().board();
  const double deadline_s = rank_.deadline_s();
  const Board::Verdict verdict = board.judge(rank_.rank(), queue.peers(), seen.since, deadline_s);
  if (!verdict.is_overdue) return;
  std::vector<std::string> others;
  for (const int other : verdict.ranks) {
    others.push_back(board.describe(other));
  }
  board.fail(rank_.rank(),
             fmt::format("{} waited {:g} s on its GPU in {}; {}", queue.title(), deadline_s,
                         text_of(seen.at_work->kind, seen.at_work->where), join(others)));
  rank_.wires().wake_all();
}

}  // namespace orthant
