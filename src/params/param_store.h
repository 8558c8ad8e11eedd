// ParamStore: where parameters, gradients and optimizer state live. ZeRO is three booleans here.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dist/mesh.h"
#include "mem/arena.h"
#include "ops/ops.h"
#include "params/host_updates.h"
#include "params/param_source.h"
#include "params/segment.h"
#include "params/staging.h"
#include "params/unit.h"

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

struct StoreConfig {
  Sharding sharding;
  // Sharded values are gathered for each use, or once a step and then held.
  enum class Gather : std::uint8_t { kMicro, kStep } gather = Gather::kMicro;
  DType compute = DType::kF32;
  DType master = DType::kF32;   // or i16, beside bf16: what values lack of their masters
  DType moments = DType::kF32;  // or bf16, rounded by chance
  DType grads = DType::kF32;    // or bf16, rounded when a micro-batch's are added
  double offload_fraction = 0;  // of the units' elements: their optimizer state is on the host
  Purpose purpose = Purpose::kTrain;
};

class ParamStore {
 public:
  struct Parts {
    Ops& ops;
    Device& device;
    const Mesh& mesh;
    Arena& params;
    Arena& staging;                               // buffers of ZeRO 2 and 3
    std::optional<HostUpdates::Parts> host = {};  // of offload
  };
  // Takes memory from the arenas and points every Param's value and grad into it.
  ParamStore(std::vector<UnitSpec> units, const StoreConfig& config, const Parts& parts);

  int num_units() const { return static_cast<int>(units_.size()); }

  // One step, in this order. Units are named by their place in the list given.
  // The units that use() will name until the next such call, in order; the list stays as long.
  void expect_uses(std::span<const int> order);
  void begin_step();       // gradients are zero
  void use(int unit);      // Param::value is whole from here ...
  void release(int unit);  // ... to here
  // Whether a unit is to be released before the next is used: it has memory only while it is at
  // work.
  bool takes_units_in_turn() const { return values_ || grads_ || fresh_; }
  void open_grads(int unit);  // Param::grad may be added to from here ...
  enum class Micro : std::uint8_t { kMore, kLast };
  // ... to here. The sum over dp starts: of this micro-batch where gradients are sharded, else of
  // all when it is the last.
  void close_grads(int unit, Micro micro);
  // Waits: every shard holds its gradient, summed over dp and over the ranks that hold parts of it,
  // both uses of a tied table added.
  void finish_grads();
  void publish();  // after the optimizer: replicated values are whole again

  // What this rank's optimizer updates: all of its shards. Those on the host are updated later, as
  // the function set here says: when the step state is given, behind what runs until their weights
  // are next asked for.
  using Segment = orthant::Segment;
  std::span<const Segment> segments() const { return segments_; }
  void set_host_update(const HostUpdates::Update& update);
  void begin_host_updates(const Tensor& step_state);
  // The ranks over which the counted segments together are the whole model once.
  Communicator& norm_group() const;

  // All ranks together, before weights are read outside of a step: updates that are due are made.
  void settle();

  // What this rank saves: together with the other ranks each logical element once, shared evenly
  // over dp.
  struct Owned {
    const ParamSpec* spec;
    Piece piece;
    Tensor master;  // f32 [count], or i16: what `value` lacks
    Tensor value;   // on the device; absent where the master is all of the weight
    Tensor m;       // f32 or bf16, as v
    Tensor v;
    Tensor grad;   // valid after finish_grads()
    Device* home;  // where master, m and v lie
  };
  std::vector<Owned> owned() const;

  // What of each parameter's value lies here: all of this rank's part, padding of a vocabulary
  // included, or with ZeRO 3 what is in its shard.
  struct Held {
    const Param* param;
    std::int64_t first;  // in the flattened part
    Tensor value;        // compute type
    bool is_whole;       // the part
    bool is_second;      // the head's own copy of a tied table
  };
  std::vector<Held> held() const;

  // Fills values, master weights and moments. Not part of a step.
  void load(const ParamSource& source);

  // The parameter whose gradient is the first (in unit order) with an element that is not finite in
  // this rank's shard, or empty. Reads tensors back: after a step that was skipped, never within
  // one.
  std::string first_non_finite_grad() const;

 private:
  struct Unit {
    Unit(UnitSpec the_spec, ShardOf shard, int number)
        : spec(std::move(the_spec)),
          places(spec.params, shard),
          value_unit(number) {}
    UnitSpec spec;
    UnitPlaces places;
    int value_unit;      // who has its value: itself, or the first use of a tied table
    Tensor value;        // whole; absent where values are sharded
    Tensor value_shard;  // this rank's shard of it
    Tensor grad;         // whole; absent where gradients are sharded
    Tensor grad_shard;
    Tensor master;  // of the shard, as m and v; on the host where it is offloaded
    Tensor m;
    Tensor v;
    Token whole;  // the call that gathers the value behind an update on the host
  };
  void allocate_values(Unit& unit);
  void allocate_training(Unit& unit);
  void stage();
  void bind_values(const Unit& unit, const Tensor& whole);
  void bind_grads(const Unit& unit, const Tensor& whole);
  void add_segments(const Unit& unit);
  void load_run(const Unit& unit, const Param& param, std::int64_t first, const Run& run,
                const ParamSource& source);
  void put_master(const Unit& unit, std::int64_t at, std::span<const float> values);
  int first_offloaded() const;
  bool is_offloaded(int unit) const { return host_ && host_->has(unit); }
  Device& home_of(const Unit& unit) const {
    return is_offloaded(unit.value_unit) ? parts_.device.host() : parts_.device;
  }
  bool gathers_updates() const { return config_.sharding.optimizer && !config_.sharding.params; }
  void start_bringing(int unit);
  void bring(int unit);
  void clear_grad(const Unit& unit);
  void sum_partial_grads();
  void sum_tied_grads();
  bool has_own_value(const Unit& unit) const {
    return &unit == &units_[static_cast<std::size_t>(unit.value_unit)];
  }
  Unit& at(int unit) { return units_.at(static_cast<std::size_t>(unit)); }
  Unit* tied(UnitSpec::Tie tie);

  StoreConfig config_;
  Parts parts_;
  std::vector<Unit> units_;
  std::vector<Segment> segments_;
  std::optional<HostUpdates> host_;
  StartedCalls calls_;  // over dp
  std::optional<GatheredValues> values_;
  std::optional<ScatteredGrads> grads_;
  std::optional<FreshGrads> fresh_;
};

}  // namespace orthant
