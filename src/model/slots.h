// Slots: the arenas of the stashes in flight on one rank, shared by its chunks, and of what lies
// between the halves of a backward. Which a micro-batch gets follows from the list of actions
// alone: a dry run fills the same ones.
#pragma once

#include <span>
#include <vector>

#include "layers/context.h"
#include "layers/stash.h"
#include "model/stash_offload.h"

namespace orthant {

class Slots {
 public:
  struct Slot {
    Arena* arena;
    std::vector<Stash> stashes;  // one, or one for each half of the micro-batch
    MicroBatch batch;
    int chunk = kNone;  // whose micro-batch is in it
    int micro = kNone;
    int last_chunk = kNone;  // the one before, in this run of the list
    Arena* late = nullptr;   // for what the first half of a backward leaves to the second
    Arena* host = nullptr;   // for what leaves: null when nothing does
    std::vector<StashOffload::Parcel> parcels = {};
    // Where tensors of all its stashes lie from now on.
    void use(Arena& now, Arena& after) {
      for (Stash& stash : stashes) {
        stash.use(now, after);
      }
    }
    void settle() { use(*arena, late == nullptr ? *arena : *late); }  // in this slot
  };
  // One arena a micro-batch in flight, and one of `lates` a micro-batch between the halves of its
  // backward; `num_layers` of the longest chunk; `num_stashes` of a slot.
  Slots(std::span<Arena* const> arenas, std::span<Arena* const> lates, int num_layers,
        int num_chunks, int num_stashes);

  // One host arena a slot; `num_parcels` of the chunk with most.
  void add_hosts(std::span<Arena* const> hosts, int num_parcels);

  // Before each run of a list.
  enum class List { kTraining, kForwardOnly };
  void begin(List list);

  // A free slot. In a training preferably one that held this chunk before, else a fresh one: chunks
  // differ in size, and a slot is as large as the largest that it ever holds. A list of forwards
  // alone has one micro-batch in flight: it gets the slot that a training gave the chunk first.
  Slot& open(int chunk, int micro);
  Slot& at(int chunk, int micro);
  // The same when a backward's input half comes alone: with a late arena, chosen as a slot is.
  Slot& split(int chunk, int micro);
  void close(int chunk, int micro);

 private:
  static constexpr int kNone = -1;
  struct Late {
    Arena* arena;
    int micro = kNone;  // kNone: free
    int last_chunk = kNone;
  };
  template <class Place>
  Place* pick_free(std::vector<Place>& places, int chunk) const;
  Slot& pick(int chunk);

  List list_ = List::kTraining;
  std::vector<Slot> slots_;
  std::vector<Late> lates_;
  std::vector<Slot*> home_;  // by chunk: the slot that a training gave it first
};

}  // namespace orthant
