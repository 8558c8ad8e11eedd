#include "comm/thread/shared_state.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace orthant {

Place::Place(std::string_view name)
    : size_(static_cast<std::uint8_t>(std::min(name.size(), sizeof(text_)))) {
  std::copy_n(name.begin(), size_, text_);
}

std::string text_of(Call::Kind kind, const Place& place) {
  return place.text().empty() ? std::string(name_of(kind))
                              : fmt::format("{} '{}'", name_of(kind), place.text());
}

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

std::string Group::title(int rank) const {
  constexpr std::size_t kMostListed = 16;
  const std::string list =
      members.size() <= kMostListed
          ? fmt::format("{}", fmt::join(members, ","))
          : fmt::format("of {}, {}..{}", members.size(), members.front(), members.back());
  return fmt::format("rank {} ({} group {})", members[static_cast<std::size_t>(rank)], name, list);
}

SharedState::SharedState(int size, double deadline_s)
    : deadline_s_(deadline_s),
      ranks_(static_cast<std::size_t>(size)) {}

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
  {
    const std::lock_guard lock(failure_mutex_);
    if (!has_failed()) {
      failure_ = fmt::format("rank {} failed: {}", world_rank, why);
      has_failed_.store(true, std::memory_order_release);
    }
  }
  wake_all_and_wait_until_idle();
}

void SharedState::throw_failed() {
  // The caller will free memory that others may still read.
  wake_all_and_wait_until_idle();
  const std::lock_guard lock(failure_mutex_);
  throw PeerFailed(failure_);
}

void SharedState::note(int world_rank, const Group& group, Call::Kind kind, const Place& place) {
  RankState& rank = at(world_rank);
  const std::lock_guard lock(rank.mutex);
  rank.group = &group;
  rank.kind = kind;
  rank.place = place;
}

void SharedState::note_waiting(int world_rank, bool is_waiting) {
  RankState& rank = at(world_rank);
  const std::lock_guard lock(rank.mutex);
  rank.is_waiting = is_waiting;
}

std::string SharedState::describe(int world_rank) const {
  const RankState& rank = at(world_rank);
  const std::lock_guard lock(rank.mutex);
  if (rank.group == nullptr) return fmt::format("rank {} has made no call", world_rank);
  return fmt::format("rank {} {} {} ({})", world_rank,
                     rank.is_waiting ? "is in" : "has gone on from", text_of(rank.kind, rank.place),
                     rank.group->name);
}

}  // namespace orthant
