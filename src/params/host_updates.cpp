#include "params/host_updates.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace orthant {
namespace {

Tensor after(const Tensor& tensor, std::int64_t elements, std::int64_t count) {
  return tensor.absent() ? tensor : tensor.flat(elements, count);
}

}  // namespace

HostUpdates::HostUpdates(int num_units, const Parts& parts)
    : parts_(parts),
      units_(static_cast<std::size_t>(num_units)),
      step_state_(parts_.arena.alloc(step_state_shape(), DType::kU8, MemClass::kOptimizer)) {}

const HostUpdates::Tensors& HostUpdates::add(int unit, const Tensor& value, const Tensor& grad,
                                             DType moments) {
  const auto alloc = [&](DType type) {
    return parts_.arena.alloc(grad.shape, type, MemClass::kOptimizer);
  };
  Unit& added = at(unit);
  added.device_value = value;
  added.device_grad = grad;
  added.here = {.master = alloc(DType::kF32), .m = alloc(moments), .v = alloc(moments)};
  return added.here;
}

void HostUpdates::add_segment(int unit, const Segment& segment, std::int64_t first) {
  at(unit).parts.push_back({segment, first});
}

// A quarter of the largest unit, so that its copies hide behind its updates; not so large that the
// buffers count, nor so small that a unit's pieces are hard to count.
std::int64_t HostUpdates::piece_elements() const {
  std::int64_t largest = 0;
  for (const Unit& unit : units_) {
    if (unit.device_grad.present()) largest = std::max(largest, unit.device_grad.count());
  }
  const std::int64_t wanted = std::max(std::min(largest / 4, kMostElements), largest / kMostPieces);
  return (wanted + kNormBlock - 1) / kNormBlock * kNormBlock;
}

void HostUpdates::make_buffers() {
  const std::int64_t elements = piece_elements();
  for (Unit& unit : units_) {
    if (unit.device_grad.absent()) continue;
    const std::int64_t all = unit.device_grad.count();
    for (std::int64_t first = 0; first < all; first += elements) {
      const std::size_t number = num_pieces_++;
      unit.pieces.emplace_back(*this, number % kBuffers, first, std::min(elements, all - first));
    }
    if (!buffers_.empty()) continue;
    const auto alloc = [&](DType type) {
      return parts_.arena.alloc({elements}, type, MemClass::kStaging);
    };
    const DType compute = unit.device_value.dtype;
    for (int i = 0; i < kBuffers; ++i) {
      buffers_.push_back({.grad = alloc(unit.device_grad.dtype),
                          .value = compute == DType::kF32 ? Tensor{} : alloc(compute),
                          .updated = {},
                          .coming = {}});
    }
  }
}

void HostUpdates::set_update(const Update& update) {
  for (Unit& unit : units_) {
    for (Piece& piece : unit.pieces) {
      plan(unit, piece, update);
    }
  }
}

void HostUpdates::plan(const Unit& unit, Piece& piece, const Update& update) const {
  const Buffer& buffer = buffers_[piece.buffer];
  for (const Part& part : unit.parts) {
    const std::int64_t first = std::max(part.first, piece.first);
    const std::int64_t last =
        std::min(part.first + part.segment.master.count(), piece.first + piece.count);
    if (first >= last) continue;
    const std::int64_t count = last - first;
    Segment run = part.segment;
    run.master = after(run.master, first - part.first, count);
    run.m = after(run.m, first - part.first, count);
    run.v = after(run.v, first - part.first, count);
    run.grad = after(buffer.grad, first - piece.first, count);
    run.value = after(buffer.value, first - piece.first, count);
    run.places.first += first - part.first;
    const AdamW args = update(run, step_state_);
    const Cost one = cost(args);
    piece.cost.flops += one.flops;
    piece.cost.bytes += one.bytes;
    const auto reads = args.reads();
    const auto writes = args.writes();
    piece.reads.insert(piece.reads.end(), reads.begin(), reads.end());
    piece.writes.insert(piece.writes.end(), writes.begin(), writes.end());
    piece.updates.push_back(args);
  }
}

void HostUpdates::Piece::run() noexcept {
  try {
    for (const AdamW& update : updates) {
      owner.parts_.ops.run(update);
    }
    owner.parts_.ledger.restart();
  } catch (...) {
    if (!owner.has_fault_) owner.fault_ = std::current_exception();
    owner.has_fault_ = true;
  }
}

void HostUpdates::begin(const Tensor& step_state) {
  if (has_fault_) std::rethrow_exception(fault_);
  parts_.transfers.wait(parts_.transfers.start_out(step_state_, step_state));
  for (Unit& unit : units_) {
    if (!unit.pieces.empty()) unit.state = State::kDue;
  }
}

void HostUpdates::start() {
  // Those that used the buffers before are settled.
  for (Buffer& buffer : buffers_) {
    buffer.updated = {};
    buffer.coming = {};
  }
  for (Unit& unit : units_) {
    if (unit.state != State::kDue) continue;
    unit.state = State::kOnItsWay;
    for (Piece& piece : unit.pieces) {
      start(unit, piece);
    }
  }
}

void HostUpdates::start(const Unit& unit, Piece& piece) {
  Buffer& buffer = buffers_[piece.buffer];
  const Tensor grad = buffer.grad.flat(0, piece.count);
  const Tensor weights = buffer.value.present() ? buffer.value.flat(0, piece.count)
                                                : unit.here.master.flat(piece.first, piece.count);
  piece.leaving = parts_.transfers.start_out(grad, unit.device_grad.flat(piece.first, piece.count),
                                             {buffer.updated, {}});
  piece.updated = parts_.transfers.start_work({.what = AdamW::kName,
                                               .cost = piece.cost,
                                               .reads = piece.reads,
                                               .writes = piece.writes,
                                               .work = &piece},
                                              {piece.leaving, buffer.coming});
  piece.coming = parts_.transfers.start_in(unit.device_value.flat(piece.first, piece.count),
                                           weights, {piece.updated, {}});
  buffer.updated = piece.updated;
  if (buffer.value.present()) buffer.coming = piece.coming;
}

int HostUpdates::pending_after(int unit) const {
  for (int next = unit + 1; next < static_cast<int>(units_.size()); ++next) {
    if (is_pending(next)) return next;
  }
  return -1;
}

bool HostUpdates::finish(int unit) {
  Unit& finished = at(unit);
  if (finished.state == State::kSettled) return false;
  if (finished.state == State::kDue) start();
  for (Piece& piece : finished.pieces) {
    parts_.transfers.wait(std::exchange(piece.leaving, {}));
    parts_.transfers.wait(std::exchange(piece.updated, {}));
    parts_.transfers.wait(std::exchange(piece.coming, {}));
  }
  finished.state = State::kSettled;
  return true;
}

bool HostUpdates::is_settled() const {
  return std::all_of(units_.begin(), units_.end(),
                     [](const Unit& unit) { return unit.state == State::kSettled; });
}

void HostUpdates::wait_for_host() {
  parts_.transfers.drain();
  if (has_fault_) std::rethrow_exception(fault_);
}

void HostUpdates::drop() noexcept {
  for (Unit& unit : units_) {
    if (unit.state == State::kDue) unit.state = State::kSettled;
  }
}

}  // namespace orthant
