#include "mem/arena.h"

#include <exception>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace orthant {

std::string_view name_of(MemClass what) {
  switch (what) {
    case MemClass::kParameters: return "parameters";
    case MemClass::kGradients: return "gradients";
    case MemClass::kOptimizer: return "optimizer";
    case MemClass::kActivations: return "activations";
    case MemClass::kWork: return "work";
    case MemClass::kStaging: return "staging";
    case MemClass::kCommunication: return "communication";
  }
  return "?";
}

Arena::Arena(Device& device, const InFlight& in_flight, std::string name,
             std::int64_t capacity_bytes, Place place)
    : device_(place == Place::kHost ? device.host() : device),
      in_flight_(in_flight),
      name_(std::move(name)),
      capacity_(capacity_bytes),
      place_(place),
      base_(device_.reserve(capacity_bytes)) {}

Arena::~Arena() {
  device_.release(base_, capacity_);
}

Tensor Arena::alloc(const Shape& shape, DType dtype, MemClass what) {
  const std::int64_t bytes = (shape.count() * size_of(dtype) + kAlign - 1) / kAlign * kAlign;
  if (now_.top + bytes > capacity_) {
    throw Error(Fault::kPlan, fmt::format("arena '{}' is planned for {}, tensor {} {} raises it to "
                                          "{}; plan and run disagree, please "
                                          "report",
                                          name_, format_bytes(capacity_), shape.text(),
                                          name_of(dtype), format_bytes(now_.top + bytes)));
  }
  const Tensor tensor{.data = base_ + now_.top, .shape = shape, .dtype = dtype};
  now_.top += bytes;
  now_.by_class[static_cast<std::size_t>(what)] += bytes;
  if (now_.top > peak_.top) peak_ = now_;
  return tensor;
}

void Arena::rewind(const Mark& mark) {
  ORTHANT_CHECK(mark.top <= now_.top, "arena '{}' is rewound to {} above its top {}", name_,
                mark.top, now_.top);
  in_flight_.check_free(base_ + mark.top, base_ + now_.top, name_);
  now_ = mark;
}

int Frame::count_exceptions() {
  return std::uncaught_exceptions();
}

Frame::~Frame() noexcept(false) {
  if (std::uncaught_exceptions() == exceptions_) arena_.rewind(mark_);
}

}  // namespace orthant
