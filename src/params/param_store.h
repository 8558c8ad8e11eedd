// ParamStore: where parameters, gradients and optimizer state live. ZeRO is three booleans here.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "dist/mesh.h"
#include "mem/arena.h"
#include "ops/ops.h"
#include "params/param.h"
#include "params/param_source.h"

namespace orthant {

struct Sharding {
  bool optimizer = false;
  bool grads = false;
  bool params = false;
};
constexpr Sharding zero(int stage) {
  return {stage >= 1, stage >= 2, stage >= 3};
}

// What a run does with its parameters.
enum class Purpose : std::uint8_t {
  kTrain,
  kInfer,  // values only: no gradients, no optimizer state
};

// Parameters that are gathered, reduced and sharded together: one flat run of memory.
struct UnitSpec {
  std::string name;
  std::vector<Param*> params;
  // Tied embeddings. kFirst: the embedding's use, where the table is saved, counted and updated.
  // kSecond: the head's use, with a gradient of its own; on one rank it shares the value of kFirst,
  // on two both ends keep and update a copy.
  enum class Tie : std::uint8_t { kNone, kFirst, kSecond } tie = Tie::kNone;
};

class ParamStore {
 public:
  struct Parts {
    Ops& ops;
    Device& device;
    const Mesh& mesh;
    Arena& params;
  };
  // Takes memory from parts.params and points every Param's value and grad into it.
  ParamStore(std::vector<UnitSpec> units, Sharding sharding, DType compute, Purpose purpose,
             const Parts& parts);

  int num_units() const { return static_cast<int>(units_.size()); }

  // One step, in this order. Units are named by their place in the list given.
  void begin_step();          // gradients are zero
  void use(int unit);         // Param::value is whole from here ...
  void release(int unit);     // ... to here
  void open_grads(int unit);  // Param::grad may be added to from here ...
  enum class Micro : std::uint8_t { kMore, kLast };
  void close_grads(int unit, Micro micro);  // ... to here; kLast starts the unit's sum over dp
  void
  finish_grads();  // waits: every shard holds its summed gradient, both uses of a tied table added
  void publish();  // after the optimizer: replicated values are whole again

  // What this rank's optimizer updates: runs of one shard whose elements share their settings.
  // Starts are multiples of kNormBlock within the unit, padding (zeros) included.
  struct Segment {
    Tensor master;  // f32; the value itself when the compute type is f32
    Tensor m;
    Tensor v;
    Tensor value;  // the compute type; absent when that is f32
    Tensor grad;   // f32
    bool decays;
    bool counted;  // in the global norm on this rank: each logical element once in norm_group()
  };
  std::span<const Segment> segments() const { return segments_; }
  // The ranks over which the counted segments together are the whole model once.
  Communicator& norm_group() const;

  // What this rank saves: together with the other ranks each logical element once, shared evenly
  // over dp.
  struct Owned {
    const ParamSpec* spec;
    Piece piece;
    Tensor weight;  // f32 [count]
    Tensor m;
    Tensor v;
    Tensor grad;  // valid after finish_grads()
  };
  std::vector<Owned> owned() const;

  // Fills values, master weights and moments. Not part of a step.
  void load(const ParamSource& source);

  // The parameter whose gradient is the first (in unit order) with an element that is not finite,
  // or empty. Reads tensors back: after a step that was skipped, never within one.
  std::string first_non_finite_grad() const;

 private:
  struct Group {  // parameters that lie without a gap
    std::int64_t first;
    std::int64_t count;  // padded
    bool decays;
    bool replicated;
  };
  struct Unit {
    UnitSpec spec;
    std::vector<std::int64_t> firsts;  // of each parameter
    std::vector<Group> groups;
    std::int64_t count = 0;  // padded
    std::int64_t shard_first = 0;
    std::int64_t shard_count = 0;
    Tensor value;
    Tensor grad;
    Tensor master;  // of the shard, as m and v
    Tensor m;
    Tensor v;
    Token reduction;
    bool shares_value = false;
  };
  void place(Unit& unit) const;
  void allocate();
  void allocate_training(Unit& unit);
  void add_segments(const Unit& unit);
  void load_run(const Unit& unit, const Param& param, std::int64_t param_first, const Run& run,
                const ParamSource& source);
  bool sharded() const;
  Unit* tied(UnitSpec::Tie tie);

  Sharding sharding_;
  DType compute_;
  Purpose purpose_;
  Parts parts_;
  std::vector<Unit> units_;
  std::vector<Segment> segments_;
  std::vector<int> closing_order_;  // units whose sum over dp was started, in that order
};

}  // namespace orthant
