// Slots: the arenas of the stashes in flight on one rank, shared by its chunks. Which slot a
// micro-batch gets follows from the list of actions alone: a dry run fills the same ones.
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
    Stash stash;
    MicroBatch batch;
    int chunk = kNone;  // whose micro-batch is in it
    int micro = kNone;
    int last_chunk = kNone;  // the one before, in this run of the list
    Arena* host = nullptr;   // for what leaves: null when nothing does
    std::vector<StashOffload::Parcel> parcels = {};
  };
  // One arena a micro-batch in flight; `num_layers` of the longest chunk.
  Slots(std::span<Arena* const> arenas, int num_layers, int num_chunks);

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
  void close(int chunk, int micro);

 private:
  static constexpr int kNone = -1;
  Slot* first_free(int last_chunk);
  Slot& pick(int chunk);

  List list_ = List::kTraining;
  std::vector<Slot> slots_;
  std::vector<Slot*> home_;  // by chunk: the slot that a training gave it first
};

}  // namespace orthant
