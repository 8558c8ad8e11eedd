// Staging: buffers in which a unit is whole only while it is at work. Values are gathered a unit
// ahead of their use (ZeRO 3); gradients are summed and scattered behind the next unit's work
// (ZeRO 2 and 3).
#pragma once

#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "mem/arena.h"
#include "ops/ops.h"

namespace orthant {

// Started calls of one group, waited for in their order.
class StartedCalls {
 public:
  StartedCalls(Communicator& group, Ops& ops) : group_(group), ops_(ops) { calls_.reserve(16); }

  struct Call {
    Token token;
    Tensor into;  // += `from` when the call is done; absent: nothing is added
    Tensor from;
  };
  void add(const Call& call) { calls_.push_back(call); }
  void wait_through(Token token);  // for it and all before it; a done token waits for none
  void wait_all();

 private:
  void wait_first();

  Communicator& group_;
  Ops& ops_;
  std::vector<Call> calls_;
};

// A unit as the staging buffers see it.
struct StagedUnit {
  int holder = 0;          // whose elements these are: its own, or a tied table's first use
  std::int64_t count = 0;  // elements; 0 where another unit holds them
  bool is_side = false;    // used together with a larger unit
  bool has_own = false;    // a buffer that is its alone
  Tensor shard;            // this rank's: of the values, or f32 sums of the gradients
};

// Some buffers of the largest unit, and those of the units that have their own.
class StagingBuffers {
 public:
  struct Buffer {
    Tensor memory;
    int unit = -1;  // whose elements are here; -1: nobody's
    Token last;     // the call that fills it or takes from it
    bool in_use = false;
  };
  StagingBuffers(std::span<const StagedUnit> units, int num_shared, DType dtype, Arena& arena);

  Buffer* find(int unit);  // null: no buffer has it
  Buffer& take(int unit);  // the unit's own, or the shared one that was taken longest ago
  void forget();           // nobody's elements are in any

 private:
  std::vector<Buffer> buffers_;  // the shared ones first
  std::vector<int> own_;         // by unit; -1: none
  int num_shared_ = 0;
  int next_shared_ = 0;
};

// ZeRO 3: whole values, one unit ahead.
class GatheredValues {
 public:
  GatheredValues(std::vector<StagedUnit> units, DType dtype, Arena& staging, Communicator& dp,
                 StartedCalls& calls);

  // Told of a unit whose shard is about to be read.
  void on_gather(std::function<void(int unit)> told) { on_gather_ = std::move(told); }
  // The units that use() will name from now on, in order; the list stays as long.
  void expect(std::span<const int> order);
  Tensor use(int unit);  // [count], whole until release()
  void release(int unit);

 private:
  static constexpr int kShared = 2;  // one in use, one being gathered
  int holder_of(int unit) const { return units_[static_cast<std::size_t>(unit)].holder; }
  StagingBuffers::Buffer& gathered(int unit);
  void gather_ahead(int unit);

  std::vector<StagedUnit> units_;
  Communicator& dp_;
  StartedCalls& calls_;
  StagingBuffers buffers_;
  std::function<void(int unit)> on_gather_;
  std::span<const int> order_;
  std::size_t next_ = 0;
};

// Gradients of one micro-batch in f32, where they are kept in bf16: so what is added to those is
// rounded once.
class FreshGrads {
 public:
  FreshGrads(std::vector<StagedUnit> units, Arena& staging, Ops& ops);
  Tensor open(int unit);   // [count], zero
  Tensor close(int unit);  // what was added

 private:
  std::vector<StagedUnit> units_;
  Ops& ops_;
  StagingBuffers buffers_;
};

// ZeRO 2 and 3: whole gradients of one micro-batch.
class ScatteredGrads {
 public:
  ScatteredGrads(std::vector<StagedUnit> units, DType dtype, Arena& staging, Communicator& dp,
                 StartedCalls& calls);

  Tensor open(int unit);  // [count], to be written until close()
  // Starts the sum over dp; the rank's share of it is added to the shard.
  void close(int unit);
  void forget() { buffers_.forget(); }  // after all calls are done

 private:
  static constexpr int kShared = 2;  // one being added to, one being scattered

  std::vector<StagedUnit> units_;
  Communicator& dp_;
  StartedCalls& calls_;
  StagingBuffers buffers_;
};

}  // namespace orthant
