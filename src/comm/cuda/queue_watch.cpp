#include "comm/cuda/queue_watch.h"

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "comm/look_guard.h"
#include "mem/cuda_check.h"

namespace orthant {

QueueWatch::QueueWatch(StreamRank& rank, std::function<void()> release,
                       std::function<std::optional<BrokenLink>()> find_broken)
    : rank_(rank),
      release_(std::move(release)),
      find_broken_(std::move(find_broken)) {
  ORTHANT_CUDA(cudaGetDevice(&gpu_));
  guard_ = std::jthread([this](const std::stop_token& stop) { guard(stop); });
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
  if (cudaSetDevice(gpu_) != cudaSuccess) {
    return fail(fmt::format("the calls of GPU {} cannot be watched", gpu_), {});
  }
  while (!stop.stop_requested()) {
    look();
    ++num_looks_;
    std::this_thread::sleep_for(kEvery);
  }
}

void QueueWatch::look() {
  const std::lock_guard lock(mutex_);
  const bool has_failed = rank_.wires().board().has_failed();
  if (has_failed) release_();
  bool is_at_work = false;
  for (CallQueue* queue : queues_) {
    const CallQueue::Look seen = queue->look();
    if (seen.has_moved) rank_.wires().board().touch(rank_.rank());
    if (seen.at_work && !has_failed) fail_if_late(*queue, seen);
    is_at_work = is_at_work || seen.at_work;
  }
  is_at_work_ = is_at_work;
  if (!has_failed) fail_if_broken();
}

// Takes no lock that a call of CUDA or NCCL is made under.
void QueueWatch::guard(const std::stop_token& stop) {
  LookGuard guard;
  std::mutex mutex;
  std::condition_variable_any stopped;
  for (;;) {
    std::unique_lock lock(mutex);
    stopped.wait_for(lock, stop, std::chrono::duration<double>(LookGuard::kEveryS),
                     [] { return false; });
    if (stop.stop_requested()) return;
    const double deadline_s = rank_.deadline_s();
    switch (guard.ask(num_looks_, is_at_work_, rank_.wires().board().has_failed(), deadline_s)) {
      case LookGuard::Verdict::kWell: break;
      case LookGuard::Verdict::kStuck: fail_stuck(); break;
      case LookGuard::Verdict::kEnd: end(LookGuard::grace_s(deadline_s));
    }
  }
}

// Under a launcher that is not ours nobody else ends a process whose GPU stands still.
void QueueWatch::end(double grace_s) const {
  fmt::print(stderr, "orthant: {}; {:g} s later the GPU of rank {} still waits, so it ends\n",
             rank_.wires().board().failure(), grace_s, rank_.rank());
  std::_Exit(static_cast<int>(Fault::kLost));
}

void QueueWatch::fail_stuck() {
  std::vector<int> others;
  for (int other = 0; other < rank_.size(); ++other) {
    if (other != rank_.rank()) others.push_back(other);
  }
  fail(fmt::format("rank {} has waited {:g} s in a call of CUDA or NCCL", rank_.rank(),
                   rank_.deadline_s()),
       others);
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
  fail(broken->title + " " + broken->why, broken->peers);
}

void QueueWatch::fail(const std::string& what, std::span<const int> others) {
  Board& board = rank_.wires().board();
  std::vector<std::string> descriptions;
  for (const int other : others) {
    descriptions.push_back(board.describe(other));
  }
  const std::string about = descriptions.empty() ? "" : "; " + join(descriptions);
  board.fail(rank_.rank(), what + about);
  rank_.wires().wake_all();
}

}  // namespace orthant
