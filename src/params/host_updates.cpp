#include "params/host_updates.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace orthant {

HostUpdates::HostUpdates(int num_units, const Parts& parts)
    : parts_(parts),
      units_(static_cast<std::size_t>(num_units)),
      step_state_(parts_.arena.alloc(step_state_shape(), DType::kU8, MemClass::kOptimizer)) {}

const HostUpdates::Tensors& HostUpdates::add(int unit, const Tensor& value, const Tensor& grad,
                                             DType moments) {
  const auto alloc = [&](DType type, MemClass what) {
    return parts_.arena.alloc(grad.shape, type, what);
  };
  Unit& added = at(unit);
  added.on_device_value = value;
  added.on_device_grad = grad;
  added.here = {
      .master = alloc(DType::kF32, MemClass::kOptimizer),
      .m = alloc(moments, MemClass::kOptimizer),
      .v = alloc(moments, MemClass::kOptimizer),
      .grad = alloc(grad.dtype, MemClass::kGradients),
      .value = value.dtype == DType::kF32 ? Tensor{} : alloc(value.dtype, MemClass::kParameters)};
  return added.here;
}

void HostUpdates::add_segment(int unit, const Segment& segment) {
  at(unit).segments.push_back(segment);
}

void HostUpdates::send_grad(int unit) {
  Unit& sent = at(unit);
  sent.leaving = parts_.transfers.start_out(sent.here.grad, sent.on_device_grad);
}

void HostUpdates::wait_for_grads() {
  for (Unit& unit : units_) {
    parts_.transfers.wait(std::exchange(unit.leaving, {}));
  }
}

void HostUpdates::begin(const Tensor& step_state) {
  parts_.transfers.wait(parts_.transfers.start_out(step_state_, step_state));
  for (Unit& unit : units_) {
    unit.is_due = !unit.segments.empty();
  }
}

void HostUpdates::start(int unit) {
  Unit& due = at(unit);
  if (!std::exchange(due.is_due, false)) return;
  for (const Segment& segment : due.segments) {
    update_(parts_.ops, segment, step_state_);
  }
  const Tensor& weights = due.here.value.present() ? due.here.value : due.here.master;
  due.coming = parts_.transfers.start_in(due.on_device_value, weights);
}

void HostUpdates::start_after(int unit) {
  for (std::size_t next = static_cast<std::size_t>(unit) + 1; next < units_.size(); ++next) {
    if (units_[next].is_due) return start(static_cast<int>(next));
  }
}

bool HostUpdates::finish(int unit) {
  start(unit);
  const Token coming = std::exchange(at(unit).coming, {});
  parts_.transfers.wait(coming);
  return !coming.done();
}

bool HostUpdates::is_settled() const {
  return std::all_of(units_.begin(), units_.end(),
                     [](const Unit& unit) { return !unit.is_due && unit.coming.done(); });
}

void HostUpdates::drop() noexcept {
  for (Unit& unit : units_) {
    unit.is_due = false;
  }
}

}  // namespace orthant
