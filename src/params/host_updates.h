// HostUpdates: units whose master weights and moments lie on the host. Their gradients go there
// during backward, are applied there, and the new weights come back before the next forward that
// needs them: the update of a step ends behind the forward of the next one.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "mem/arena.h"
#include "mem/transfers.h"
#include "ops/ops.h"
#include "params/segment.h"

namespace orthant {

class HostUpdates {
 public:
  struct Parts {
    Ops& ops;  // the host's
    Transfers& transfers;
    Arena& arena;  // on the host
  };
  using Update = std::function<void(Ops&, const Segment&, const Tensor& step_state)>;

  // What a unit has on the host, f32 [shard] unless said.
  struct Tensors {
    Tensor master;
    Tensor m;  // of the moments' type
    Tensor v;
    Tensor grad;
    Tensor value;  // in the compute type; absent when that is f32
  };
  HostUpdates(int num_units, const Parts& parts);
  void set_update(Update update) { update_ = std::move(update); }

  // `value`, `grad`: the unit's shards on the device.
  const Tensors& add(int unit, const Tensor& value, const Tensor& grad, DType moments);
  const Tensors& tensors(int unit) const { return at(unit).here; }
  void add_segment(int unit, const Segment& segment);
  bool has(int unit) const { return at(unit).on_device_value.present(); }

  void send_grad(int unit);              // its sum is complete: it leaves for the host
  void wait_for_grads();                 // that were sent
  void begin(const Tensor& step_state);  // norm and clip factor are known: updates may be made
  void start(int unit);        // makes its update if that is due; the weights are on their way
  void start_after(int unit);  // the same for the next one that is due
  bool finish(int unit);       // its weights are those of the last step; true: they have just come
  bool is_settled() const;     // no update is due and no weights are on their way
  void drop() noexcept;        // forgets updates that are due: other weights are loaded

 private:
  struct Unit {
    Tensors here;
    Tensor on_device_value;
    Tensor on_device_grad;
    std::vector<Segment> segments;
    bool is_due = false;
    Token leaving;  // the gradient
    Token coming;   // the value
  };
  Unit& at(int unit) { return units_.at(static_cast<std::size_t>(unit)); }
  const Unit& at(int unit) const { return units_.at(static_cast<std::size_t>(unit)); }

  Parts parts_;
  Update update_;
  std::vector<Unit> units_;
  Tensor step_state_;  // on the host
};

}  // namespace orthant
