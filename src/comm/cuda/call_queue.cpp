#include "comm/cuda/call_queue.h"

#include <algorithm>
#include <utility>

#include "mem/cuda_check.h"

namespace orthant {

CallQueue::CallQueue(cudaStream_t ops, std::vector<int> peers, std::string title)
    : ops_(ops),
      peers_(std::move(peers)),
      title_(std::move(title)) {
  // Short kernels of calls go before those of ops that wait for a multiprocessor.
  int least = 0;
  int greatest = 0;
  ORTHANT_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  ORTHANT_CUDA(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest));
  grow();
}

CallQueue::~CallQueue() {
  cudaStreamSynchronize(stream_);
  for (const Slot& one : slots_) {
    cudaEventDestroy(one.posted);
    cudaEventDestroy(one.done);
  }
  cudaStreamDestroy(stream_);
}

// Calls keep the slot of their number until they have been waited for and have ended: the host may
// wait, and post, far ahead of the GPU.
void CallQueue::grow() {
  const std::size_t before = slots_.size();
  std::vector<Slot> more(std::max<std::size_t>(16, 2 * before));
  for (std::int64_t number = oldest(); number < posted_; ++number) {
    more[static_cast<std::size_t>(number) % more.size()] = slot(number);
    slot(number) = {};
  }
  auto old = slots_.begin();
  for (Slot& one : more) {
    if (one.posted != nullptr) continue;
    while (old != slots_.end() && old->posted == nullptr) {
      ++old;
    }
    if (old != slots_.end()) {
      one = *old++;
      continue;
    }
    ORTHANT_CUDA(cudaEventCreateWithFlags(&one.posted, cudaEventDisableTiming));
    ORTHANT_CUDA(cudaEventCreateWithFlags(&one.done, cudaEventDisableTiming));
  }
  slots_ = std::move(more);
}

void CallQueue::post(const Call& call) {
  const std::lock_guard lock(mutex_);
  const auto is_full = [this] {
    return posted_ - oldest() == static_cast<std::int64_t>(slots_.size());
  };
  if (is_full()) see_ends();
  if (is_full()) grow();
  Slot& mine = slot(posted_);
  mine.call = call;
  mine.is_waited_for = false;
  ORTHANT_CUDA(cudaEventRecord(mine.posted, ops_));
  ++posted_;
}

void CallQueue::begin() {
  const std::lock_guard lock(mutex_);
  ORTHANT_CUDA(cudaStreamWaitEvent(stream_, slot(queued_).posted, 0));
}

void CallQueue::end() {
  const std::lock_guard lock(mutex_);
  ORTHANT_CUDA(cudaEventRecord(slot(queued_).done, stream_));
  ++queued_;
}

// A blocking call may be waited for before what was started earlier.
void CallQueue::wait(const Call& call) {
  const std::lock_guard lock(mutex_);
  std::int64_t number = waited_;
  while (number < queued_ && slot(number).call.sequence != call.sequence) {
    ++number;
  }
  ORTHANT_CHECK(number < queued_, "{} waits for {}, which is not queued", title_,
                text_of(call.kind, call.where));
  ORTHANT_CUDA(cudaStreamWaitEvent(ops_, slot(number).done, 0));
  slot(number).is_waited_for = true;
  while (waited_ < queued_ && slot(waited_).is_waited_for) {
    ++waited_;
  }
}

void CallQueue::see_ends() {
  while (ended_ < queued_ && cudaEventQuery(slot(ended_).done) == cudaSuccess) {
    ++ended_;
    has_begun_ = false;
    has_moved_ = true;
  }
}

CallQueue::Look CallQueue::look() {
  const std::lock_guard lock(mutex_);
  see_ends();
  Look found;
  found.has_moved = std::exchange(has_moved_, false);
  if (ended_ == queued_) return found;
  if (!has_begun_ && cudaEventQuery(slot(ended_).posted) == cudaSuccess) {
    has_begun_ = true;
    begun_ = Board::Clock::now();
    found.has_moved = true;
  }
  if (has_begun_) {
    found.at_work = slot(ended_).call;
    found.since = begun_;
  }
  return found;
}

}  // namespace orthant
