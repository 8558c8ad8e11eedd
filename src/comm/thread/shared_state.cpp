#include "comm/thread/shared_state.h"

#include <algorithm>
#include <utility>

namespace orthant {

void MessageQueue::push(const Posted& message) {
  if (size_ == ring_.size()) {
    std::rotate(ring_.begin(), ring_.begin() + static_cast<std::ptrdiff_t>(first_), ring_.end());
    first_ = 0;
    ring_.resize(std::max<std::size_t>(4, 2 * ring_.size()));
  }
  ring_[(first_ + size_) % ring_.size()] = message;
  ++size_;
}

void MessageQueue::pop() {
  first_ = (first_ + 1) % ring_.size();
  --size_;
}

Group::Group(std::string group_name, std::vector<int> world_ranks)
    : name(std::move(group_name)),
      members(std::move(world_ranks)),
      has_joined(members.size()),
      has_left(members.size()),
      pairs(members.size() * members.size()) {}

Slot* Group::find(std::int64_t sequence) {
  for (const auto& slot : slots) {
    if (slot->sequence == sequence) return slot.get();
  }
  return nullptr;
}

Slot& Group::find_or_take(std::int64_t sequence) {
  Slot* slot = find(sequence);
  if (slot == nullptr) slot = find(-1);
  if (slot == nullptr) {
    slots.push_back(std::make_unique<Slot>());
    slot = slots.back().get();
    slot->posted.resize(members.size());
  }
  slot->sequence = sequence;
  return *slot;
}

void Group::leave(int rank) {
  has_left[static_cast<std::size_t>(rank)].store(true, std::memory_order_release);
  {
    // Taken so that nobody is between looking at has_left and sleeping.
    const std::lock_guard lock(mutex);
    changed.notify_all();
  }
  for (int peer = 0; peer < static_cast<int>(members.size()); ++peer) {
    for (Pair* messages : {&pair(rank, peer), &pair(peer, rank)}) {
      const std::lock_guard lock(messages->mutex);
      messages->changed.notify_all();
    }
  }
}

SharedState::SharedState(int size, double deadline_s)
    : deadline_s_(deadline_s),
      board_memory_(static_cast<std::size_t>(Board::bytes(size)) / sizeof(std::uint64_t)),
      board_(reinterpret_cast<std::byte*>(board_memory_.data()), size, Board::Use::kReset) {}

Group& SharedState::join(const std::string& name, const std::vector<int>& members, int world_rank) {
  const std::lock_guard lock(registry_mutex_);
  const auto found = std::find(members.begin(), members.end(), world_rank);
  const auto position = static_cast<std::size_t>(found - members.begin());
  for (const auto& group : groups_) {
    if (group->has_joined.size() > position && group->has_joined[position] == 0 &&
        group->name == name && group->members == members) {
      group->has_joined[position] = 1;
      return *group;
    }
  }
  groups_.push_back(std::make_unique<Group>(name, members));
  groups_.back()->has_joined[position] = 1;
  return *groups_.back();
}

void SharedState::wake_all_and_wait_until_idle() {
  const std::lock_guard lock(registry_mutex_);
  for (const auto& group : groups_) {
    {
      std::unique_lock group_lock(group->mutex);
      group->changed.notify_all();
      group->changed.wait(group_lock, [&group] { return group->num_working == 0; });
    }
    for (Pair& pair : group->pairs) {
      // Messages move under this lock.
      const std::lock_guard pair_lock(pair.mutex);
      pair.changed.notify_all();
    }
  }
}

void SharedState::fail(int world_rank, const std::string& why) noexcept {
  board_.fail(world_rank, why);
  wake_all_and_wait_until_idle();
}

void SharedState::throw_failed() {
  // The caller will free memory that others may still read.
  wake_all_and_wait_until_idle();
  throw PeerFailed(board_.failure());
}

}  // namespace orthant
