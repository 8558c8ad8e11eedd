#include "model/slots.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace orthant {

Slots::Slots(std::span<Arena* const> arenas, std::span<Arena* const> lates, int num_layers,
             int num_chunks, int num_stashes)
    : home_(static_cast<std::size_t>(num_chunks), nullptr) {
  slots_.reserve(arenas.size());
  for (Arena* arena : arenas) {
    std::vector<Stash> stashes(static_cast<std::size_t>(num_stashes), Stash(*arena, num_layers));
    slots_.push_back({.arena = arena, .stashes = std::move(stashes), .batch = {}});
  }
  for (Arena* arena : lates) {
    lates_.push_back({.arena = arena});
  }
}

void Slots::add_hosts(std::span<Arena* const> hosts, int num_parcels) {
  ORTHANT_CHECK(hosts.size() == slots_.size(), "{} slots have {} host arenas", slots_.size(),
                hosts.size());
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].host = hosts[i];
    slots_[i].parcels.resize(static_cast<std::size_t>(num_parcels));
  }
}

void Slots::begin(List list) {
  list_ = list;
  for (Slot& slot : slots_) {
    ORTHANT_CHECK(slot.micro == kNone, "slot of micro-batch {}.{} is open between two runs",
                  slot.micro, slot.chunk);
    slot.last_chunk = kNone;
  }
  for (Late& late : lates_) {
    late.last_chunk = kNone;
  }
}

template <class Place>
Place* Slots::pick_free(std::vector<Place>& places, int chunk) const {
  const auto first_free = [&places](int last_chunk) -> Place* {
    const auto found = std::find_if(places.begin(), places.end(), [=](const Place& place) {
      return place.micro == kNone && place.last_chunk == last_chunk;
    });
    return found == places.end() ? nullptr : &*found;
  };
  Place* place = first_free(chunk);
  if (place == nullptr) place = first_free(kNone);
  for (int other = 0; place == nullptr && other < static_cast<int>(home_.size()); ++other) {
    place = first_free(other);
  }
  return place;
}

Slots::Slot& Slots::pick(int chunk) {
  Slot*& home = home_.at(static_cast<std::size_t>(chunk));
  if (list_ == List::kForwardOnly) return home == nullptr ? slots_.front() : *home;
  Slot* slot = pick_free(slots_, chunk);
  ORTHANT_CHECK(slot != nullptr, "{} slots are planned, all are taken", slots_.size());
  if (home == nullptr) home = slot;
  return *slot;
}

Slots::Slot& Slots::open(int chunk, int micro) {
  Slot& slot = pick(chunk);
  ORTHANT_CHECK(slot.micro == kNone, "micro-batch {}.{} finds {}.{} in its slot", micro, chunk,
                slot.micro, slot.chunk);
  slot.chunk = chunk;
  slot.micro = micro;
  return slot;
}

Slots::Slot& Slots::at(int chunk, int micro) {
  const auto found = std::find_if(slots_.begin(), slots_.end(), [=](const Slot& slot) {
    return slot.micro == micro && slot.chunk == chunk;
  });
  ORTHANT_CHECK(found != slots_.end(), "{} slots are planned, micro-batch {}.{} has none",
                slots_.size(), micro, chunk);
  return *found;
}

Slots::Slot& Slots::split(int chunk, int micro) {
  Slot& slot = at(chunk, micro);
  Late* late = pick_free(lates_, chunk);
  ORTHANT_CHECK(late != nullptr, "{} backwards between their halves are planned, {}.{} is one more",
                lates_.size(), micro, chunk);
  late->micro = micro;
  late->last_chunk = chunk;
  slot.late = late->arena;
  slot.settle();
  return slot;
}

void Slots::close(int chunk, int micro) {
  Slot& slot = at(chunk, micro);
  for (Stash& stash : slot.stashes) {
    stash.clear();
  }
  slot.arena->rewind({});
  if (slot.late != nullptr) {
    slot.late->rewind({});
    std::find_if(lates_.begin(), lates_.end(), [&slot](const Late& late) {
      return late.arena == slot.late;
    })->micro = kNone;
    slot.late = nullptr;
    slot.settle();
  }
  if (slot.host != nullptr) slot.host->rewind({});
  std::fill(slot.parcels.begin(), slot.parcels.end(), StashOffload::Parcel{});
  slot.last_chunk = chunk;
  slot.micro = kNone;
}

}  // namespace orthant
