#include "comm/thread/thread_communicator.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "base/text.h"
#include "comm/rank_order.h"

namespace orthant {
namespace {

using Kind = Call::Kind;

// What a waiting rank takes at once: long enough that taking it costs nothing, short enough that
// several ranks share one call.
constexpr std::int64_t kChunkBytes = std::int64_t{64} << 10;

// The tensor whose elements are divided into chunks, as runs: one for each rank, or one in all.
const Tensor& run_of(const Call& call) {
  return call.kind == Kind::kAllGather ? call.in : call.out;
}

bool has_run_per_rank(Kind kind) {
  return kind == Kind::kAllGather || kind == Kind::kReduceScatter;
}

}  // namespace

ThreadCommunicator::ThreadCommunicator(SharedState& state, std::string name,
                                       std::vector<int> members, int rank, int lane,
                                       const CommParts& parts)
    : Communicator(std::move(name), std::move(members), rank, lane, parts),
      state_(state),
      group_(state.join(this->name(), this->members(), world_rank())),
      moves_(make_device_moves(parts.queue)),
      exceptions_(std::uncaught_exceptions()),
      inputs_(this->members().size()),
      outputs_(this->members().size()) {}

ThreadCommunicator::~ThreadCommunicator() {
  if (num_started_ > 0) {
    // Others may be moving the tensors of these calls, whose memory is about to go.
    state_.fail(world_rank(), fmt::format("it stopped before its {} started calls in group '{}' "
                                          "were waited for",
                                          num_started_, name()));
  } else if (std::uncaught_exceptions() == exceptions_) {
    // A rank that ends by an error is poisoned with its message, which says more.
    group_.leave(rank());
  }
}

std::unique_ptr<Communicator> ThreadCommunicator::subgroup(std::string name,
                                                           std::vector<int> members, int lane) {
  const int position = position_of(members);
  return std::make_unique<ThreadCommunicator>(state_, std::move(name), std::move(members), position,
                                              lane, parts());
}

Posted ThreadCommunicator::posted(const Call& call) {
  return {.call = call,
          .is_here = true,
          .moves = moves_.get(),
          .point = moves_ == nullptr ? nullptr : moves_->mark()};
}

// On a GPU a run is one chunk.
std::int64_t ThreadCommunicator::chunk_elements(const Call& call) const {
  const Tensor& run = run_of(call);
  return moves_ == nullptr ? kChunkBytes / size_of(run.dtype)
                           : std::max<std::int64_t>(1, run.count());
}

std::int64_t ThreadCommunicator::chunks_per_run(const Call& call) const {
  const std::int64_t chunk = chunk_elements(call);
  return (run_of(call).count() + chunk - 1) / chunk;
}

std::int64_t ThreadCommunicator::num_chunks(const Call& call) const {
  if (call.kind == Kind::kBarrier) return 0;
  return chunks_per_run(call) * (has_run_per_rank(call.kind) ? size() : 1);
}

void ThreadCommunicator::move_bytes(std::byte* to, const std::byte* from, std::int64_t bytes) {
  if (moves_ != nullptr) {
    moves_->copy(to, from, bytes);
  } else if (to != from && bytes > 0) {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
}

void ThreadCommunicator::reduce(const Call& call, std::size_t num_outputs, std::int64_t count) {
  const DType dtype = run_of(call).dtype;
  const auto outputs = std::span(outputs_).first(num_outputs);
  if (moves_ != nullptr) {
    moves_->reduce(dtype, call.reduce, inputs_, outputs, count);
  } else {
    reduce_in_rank_order(dtype, call.reduce, inputs_, outputs, count);
  }
}

template <class Others, class Act>
void ThreadCommunicator::in_turn(const Others& others, Act&& act) {
  for (const Posted& other : others) {
    if (moves_ != nullptr && other.moves != moves_.get()) moves_->wait_for(other.point);
  }
  act();
  if (moves_ == nullptr) return;
  void* const done = moves_->mark();
  for (const Posted& other : others) {
    if (other.moves != moves_.get()) other.moves->wait_for(done);
  }
}

void ThreadCommunicator::move_all(Slot& slot) {
  in_turn(slot.posted, [&] {
    for (std::int64_t chunk = 0; chunk < slot.num_chunks; ++chunk) {
      move_chunk(slot, chunk);
    }
  });
}

Pair& ThreadCommunicator::pair_of(const Call& call) {
  return call.kind == Kind::kSend ? group_.pair(rank(), call.peer) : group_.pair(call.peer, rank());
}

void ThreadCommunicator::do_start(const Call& call, Token /*token*/) {
  state_.board().note_call(world_rank(), name(), call, -1);
  if (is_message(call.kind)) {
    post_message(call);
  } else {
    post_collective(call);
  }
  ++num_started_;
}

void ThreadCommunicator::do_wait(const Call& call, Token /*token*/) {
  if (is_message(call.kind)) {
    wait_message(call);
  } else {
    wait_collective(call);
  }
  --num_started_;
}

void ThreadCommunicator::post_collective(const Call& call) {
  const Posted mine = posted(call);
  Lock lock(group_.mutex);
  if (state_.has_failed()) {
    lock.unlock();
    state_.throw_failed();
  }
  Slot& slot = group_.find_or_take(call.sequence);
  if (slot.num_posted == 0) slot.first_rank = rank();
  const Call& first = slot.posted[static_cast<std::size_t>(slot.first_rank)].call;
  if (slot.num_posted > 0 && !agree(first, call)) {
    const int peer = slot.first_rank;
    const Call theirs = first;
    lock.unlock();
    fail_diverged(call, peer, theirs);
  }
  slot.posted[static_cast<std::size_t>(rank())] = mine;
  if (++slot.num_posted < size()) return;
  slot.num_chunks = num_chunks(call);
  // One chunk is not worth waking anyone for.
  if (slot.num_chunks <= 1 || moves_ != nullptr) {
    move_all(slot);
    finish(slot);
  } else {
    group_.changed.notify_all();
  }
}

void ThreadCommunicator::finish(Slot& slot) {
  for (Posted& posted : slot.posted) {
    posted.is_here = false;
  }
  slot.sequence = -1;
  slot.num_posted = 0;
  slot.num_chunks = 0;
  slot.next_chunk = 0;
  slot.done_chunks = 0;
  group_.changed.notify_all();
}

void ThreadCommunicator::wait_collective(const Call& call) {
  Waiting waiting{.call = call};
  Lock lock(group_.mutex);
  while (Slot* slot = group_.find(call.sequence)) {
    if (state_.has_failed()) {
      lock.unlock();
      state_.throw_failed();
    }
    if (slot->next_chunk < slot->num_chunks) {
      work(*slot, lock);
      continue;
    }
    std::vector<int> missing;
    for (std::size_t i = 0; i < slot->posted.size(); ++i) {
      if (slot->posted[i].is_here) continue;
      missing.push_back(members()[i]);
      if (group_.has_left[i]) {
        lock.unlock();
        fail_left(call, missing.back());
      }
    }
    sleep(group_.changed, lock, waiting, missing);
  }
  if (waiting.noted >= 0) state_.board().note_call(world_rank(), name(), call, -1);
}

// Moves one chunk without the lock, which others need for theirs.
void ThreadCommunicator::work(Slot& slot, Lock& lock) {
  const std::int64_t chunk = slot.next_chunk++;
  ++group_.num_working;
  lock.unlock();
  move_chunk(slot, chunk);
  lock.lock();
  --group_.num_working;
  if (++slot.done_chunks == slot.num_chunks) finish(slot);
  if (state_.has_failed()) group_.changed.notify_all();
}

void ThreadCommunicator::move_chunk(const Slot& slot, std::int64_t chunk) {
  const Call& call = slot.posted.front().call;
  const Tensor& run = run_of(call);
  const std::int64_t run_index = chunk / chunks_per_run(call);
  const std::int64_t first = chunk % chunks_per_run(call) * chunk_elements(call);
  const std::int64_t count = std::min(run.count() - first, chunk_elements(call));
  const std::int64_t begin = first * size_of(run.dtype);
  const std::int64_t bytes = count * size_of(run.dtype);
  const std::int64_t whole_begin = run_index * run.bytes() + begin;
  const auto call_of = [&slot](std::int64_t rank) -> const Call& {
    return slot.posted[static_cast<std::size_t>(rank)].call;
  };
  switch (call.kind) {
    case Kind::kAllReduce:
      for (std::size_t i = 0; i < slot.posted.size(); ++i) {
        outputs_[i] = slot.posted[i].call.out.data + begin;
        inputs_[i] = outputs_[i];
      }
      reduce(call, outputs_.size(), count);
      break;
    case Kind::kReduceScatter:
      for (std::size_t i = 0; i < slot.posted.size(); ++i) {
        inputs_[i] = slot.posted[i].call.in.data + whole_begin;
      }
      outputs_[0] = call_of(run_index).out.data + begin;
      reduce(call, 1, count);
      break;
    case Kind::kAllGather:
      for (const Posted& posted : slot.posted) {
        move_bytes(posted.call.out.data + whole_begin, call_of(run_index).in.data + begin, bytes);
      }
      break;
    case Kind::kBroadcast:
      for (const Posted& posted : slot.posted) {
        move_bytes(posted.call.out.data + begin, call_of(call.peer).out.data + begin, bytes);
      }
      break;
    default: break;
  }
}

void ThreadCommunicator::post_message(const Call& call) {
  const Posted mine = posted(call);
  Pair& pair = pair_of(call);
  Lock lock(pair.mutex);
  if (state_.has_failed()) {
    lock.unlock();
    state_.throw_failed();
  }
  const bool is_send = call.kind == Kind::kSend;
  MessageQueue& others = is_send ? pair.recvs : pair.sends;
  if (others.empty()) {
    (is_send ? pair.sends : pair.recvs).push(mine);
    return;
  }
  const Call& send = is_send ? call : others.front().call;
  const Call& recv = is_send ? others.front().call : call;
  if (!match(send, recv)) {
    const Call theirs = others.front().call;
    lock.unlock();
    fail_diverged(call, call.peer, theirs);
  }
  in_turn(std::span(&others.front(), 1),
          [&] { move_bytes(recv.out.data, send.in.data, send.in.bytes()); });
  others.pop();
  ++pair.num_moved;
  pair.changed.notify_all();
}

void ThreadCommunicator::wait_message(const Call& call) {
  Waiting waiting{.call = call};
  const int peer = members()[static_cast<std::size_t>(call.peer)];
  Pair& pair = pair_of(call);
  Lock lock(pair.mutex);
  while (pair.num_moved <= call.sequence) {
    const bool has_failed = state_.has_failed();
    if (has_failed || group_.has_left[static_cast<std::size_t>(call.peer)]) {
      lock.unlock();
      if (has_failed) state_.throw_failed();
      fail_left(call, peer);
    }
    sleep(pair.changed, lock, waiting, std::span(&peer, 1));
  }
  if (waiting.noted >= 0) state_.board().note_call(world_rank(), name(), call, -1);
}

void ThreadCommunicator::sleep(std::condition_variable& changed, Lock& lock, Waiting& waiting,
                               std::span<const int> missing) {
  if (missing.empty()) return changed.wait(lock);  // the others are at work on the last chunks
  if (waiting.noted != missing.front()) {
    waiting.noted = missing.front();
    state_.board().note_call(world_rank(), name(), waiting.call, waiting.noted);
  }
  const Board::Verdict verdict =
      state_.board().judge(world_rank(), missing, waiting.start, state_.deadline_s());
  if (verdict.is_overdue) {
    lock.unlock();
    fail_late(waiting.call, verdict.ranks);
  }
  changed.wait_until(lock, verdict.look_again);
}

void ThreadCommunicator::fail(const std::string& message) {
  state_.fail(world_rank(), message);
  throw Error(Fault::kLost, message);
}

void ThreadCommunicator::fail_diverged(const Call& mine, int peer, const Call& theirs) {
  fail(
      fmt::format("{} is in {}, but rank {} is in {}: both are number {} of their kind, so the "
                  "ranks have diverged; please report",
                  title(), details_of(mine), members()[static_cast<std::size_t>(peer)],
                  details_of(theirs), mine.sequence));
}

void ThreadCommunicator::fail_late(const Call& mine, std::span<const int> ranks) {
  std::vector<std::string> others;
  for (const int member : ranks) {
    others.push_back(state_.board().describe(member));
  }
  fail(fmt::format("{} waited {:g} s in {}; {}", title(), state_.deadline_s(),
                   text_of(mine.kind, mine.where), join(others)));
}

void ThreadCommunicator::fail_left(const Call& mine, int peer) {
  fail(fmt::format("{} waits in {}, but rank {} has left that group; {}", title(),
                   text_of(mine.kind, mine.where), peer, state_.board().describe(peer)));
}

}  // namespace orthant
