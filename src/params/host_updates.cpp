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
                                             const Types& types) {
  const auto alloc = [&](DType type) {
    return parts_.arena.alloc(grad.shape, type, MemClass::kOptimizer);
  };
  Unit& added = at(unit);
  added.device_value = value;
  added.device_grad = grad;
  added.here = {
      .master = alloc(types.master), .m = alloc(types.moments), .v = alloc(types.moments)};
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

void HostUpdates::make_pieces(Unit& unit, std::int64_t elements) {
  const std::int64_t all = unit.device_grad.count();
  for (std::int64_t first = 0; first < all; first += elements) {
    const bool on_host = !shares() || num_pieces_ % kOneOfHost == 0;
    const std::size_t before = on_host ? num_host_pieces_ : num_pieces_ - num_host_pieces_;
    unit.pieces.emplace_back(*this, on_host, before % kBuffers, first,
                             std::min(elements, all - first));
    ++num_pieces_;
    if (on_host) ++num_host_pieces_;
  }
}

void HostUpdates::make_buffers() {
  const std::int64_t elements = piece_elements();
  for (Unit& unit : units_) {
    if (unit.device_grad.absent()) continue;
    make_pieces(unit, elements);
    if (!buffers_.empty()) continue;
    const auto alloc = [&](Arena& arena, DType type) {
      return arena.alloc({elements}, type, MemClass::kStaging);
    };
    const DType compute = unit.device_value.dtype;
    const bool has_master = compute != DType::kF32;
    for (std::size_t i = 0; i < kBuffers; ++i) {
      const Tensor grad = alloc(parts_.arena, unit.device_grad.dtype);
      buffers_.push_back(
          {.tensors = {grad, has_master ? alloc(parts_.arena, compute) : Tensor{}, Tensor{}},
           .updated = {},
           .left = {}});
    }
    for (std::size_t i = 0; shares() && i < kBuffers; ++i) {
      const Tensor master = has_master ? alloc(parts_.staging, unit.here.master.dtype) : Tensor{};
      const Tensor m = alloc(parts_.staging, unit.here.m.dtype);
      const Tensor v = alloc(parts_.staging, unit.here.v.dtype);
      buffers_.push_back({.tensors = {master, m, v}, .updated = {}, .left = {}});
    }
  }
  if (shares() && !buffers_.empty()) {
    device_state_ = parts_.staging.alloc(step_state_shape(), DType::kU8, MemClass::kStaging);
  }
  steps_.reserve(num_pieces_);
  state_back_.reserve(3 * num_pieces_);
}

void HostUpdates::set_update(const Update& update) {
  for (Unit& unit : units_) {
    for (Piece& piece : unit.pieces) {
      plan(unit, piece, update);
    }
  }
}

// A run of a part, with what of it passes through buffers there.
Segment HostUpdates::staged(const Unit& unit, Piece& piece, const Part& part, std::int64_t first,
                            std::int64_t count) {
  const auto& tensors = buffer_of(piece).tensors;
  const std::int64_t in_piece = first - piece.first;
  Segment run = part.segment;
  run.places.first += first - part.first;
  if (piece.on_host) {
    run.master = after(run.master, first - part.first, count);
    run.m = after(run.m, first - part.first, count);
    run.v = after(run.v, first - part.first, count);
    run.grad = after(tensors[0], in_piece, count);
    run.value = after(tensors[1], in_piece, count);
    return run;
  }
  const Tensor value = after(unit.device_value, first, count);
  const bool has_master = tensors[0].present();
  run.master = has_master ? after(tensors[0], in_piece, count) : value;
  run.m = after(tensors[1], in_piece, count);
  run.v = after(tensors[2], in_piece, count);
  run.grad = after(unit.device_grad, first, count);
  run.value = has_master ? value : Tensor{};
  return run;
}

void HostUpdates::plan(const Unit& unit, Piece& piece, const Update& update) {
  for (const Part& part : unit.parts) {
    const std::int64_t first = std::max(part.first, piece.first);
    const std::int64_t last =
        std::min(part.first + part.segment.master.count(), piece.first + piece.count);
    if (first >= last) continue;
    const AdamW args = update(staged(unit, piece, part, first, last - first),
                              piece.on_host ? step_state_ : device_state_);
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
  const Side& side = on_host ? owner.parts_.host : owner.parts_.device;
  try {
    for (const AdamW& update : updates) {
      side.ops->run(update);
    }
    side.ledger->restart();
  } catch (...) {
    owner.note_fault();
  }
}

void HostUpdates::note_fault() noexcept {
  const std::lock_guard lock(fault_mutex_);
  if (fault_ == nullptr) fault_ = std::current_exception();
}

void HostUpdates::throw_fault() {
  const std::lock_guard lock(fault_mutex_);
  if (fault_ != nullptr) std::rethrow_exception(fault_);
}

void HostUpdates::begin(const Tensor& step_state) {
  throw_fault();
  parts_.transfers.wait(parts_.transfers.start_out(step_state_, step_state));
  if (device_state_.present()) {
    parts_.transfers.wait(parts_.transfers.start_in(device_state_, step_state_));
  }
  for (Unit& unit : units_) {
    if (!unit.pieces.empty()) unit.state = State::kDue;
  }
}

void HostUpdates::start() {
  ORTHANT_CHECK(last_of_host_ == nullptr, "updates begin while weights of the last have not left");
  // Those that used the buffers before are settled.
  for (Buffer& buffer : buffers_) {
    buffer.updated = {};
    buffer.left = {};
  }
  steps_.clear();
  for (Unit& unit : units_) {
    if (unit.state != State::kDue) continue;
    unit.state = State::kOnItsWay;
    for (Piece& piece : unit.pieces) {
      steps_.emplace_back(&unit, &piece);
    }
    unit.last_step = steps_.size();
  }
  next_fetched_ = {};
  num_started_ = 0;
  for (std::size_t buffer = 1; buffer < kBuffers; ++buffer) {
    fetch_next(true);
    fetch_next(false);
  }
  advance(kStepsAhead);
}

// The first `steps` are on their way. What one side reads is fetched as far ahead as it has
// buffers, and what the host has updated beside the device comes back a piece of the host later, so
// that no copy stands behind one that waits for a later update of the other side.
void HostUpdates::advance(std::size_t steps) {
  for (; num_started_ < std::min(steps, steps_.size()); ++num_started_) {
    const Step& step = steps_[num_started_];
    const bool waits = shares() && step.second->on_host;
    if (waits) put_last_of_host();
    fetch_next(step.second->on_host);
    update(step);
    if (waits) {
      last_of_host_ = &step;
    } else {
      put(step);
    }
  }
  if (num_started_ == steps_.size()) put_last_of_host();
}

void HostUpdates::fetch_next(bool on_host) {
  std::size_t& next = next_fetched_[on_host ? 0 : 1];
  while (next < steps_.size() && steps_[next].second->on_host != on_host) {
    ++next;
  }
  if (next < steps_.size()) fetch(steps_[next++]);
}

void HostUpdates::put_last_of_host() {
  if (last_of_host_ != nullptr) put(*last_of_host_);
  last_of_host_ = nullptr;
}

void HostUpdates::fetch(const Step& step) {
  const Unit& unit = *step.first;
  Piece& piece = *step.second;
  const Buffer& buffer = buffer_of(piece);
  const auto run = [&](const Tensor& tensor) {
    return tensor.flat(piece.first, piece.count);
  };
  if (piece.on_host) {
    piece.coming[0] = parts_.transfers.start_out(buffer.tensors[0].flat(0, piece.count),
                                                 run(unit.device_grad), {buffer.updated, {}});
    if (is_split(unit)) {
      piece.coming[1] = parts_.transfers.start_out(buffer.tensors[1].flat(0, piece.count),
                                                   run(unit.device_value), {buffer.left, {}});
    }
    return;
  }
  const std::array here = {unit.here.master, unit.here.m, unit.here.v};
  for (std::size_t i = 0; i < here.size(); ++i) {
    if (buffer.tensors[i].absent()) continue;
    piece.coming[i] = parts_.transfers.start_in(buffer.tensors[i].flat(0, piece.count),
                                                run(here[i]), {buffer.left, {}});
  }
}

void HostUpdates::update(const Step& step) {
  Piece& piece = *step.second;
  Buffer& buffer = buffer_of(piece);
  const std::size_t num_coming = !piece.on_host ? 3 : is_split(*step.first) ? 2 : 1;
  const Token last = piece.coming[num_coming - 1];
  piece.updated = parts_.transfers.start_work({.what = AdamW::kName,
                                               .lane = piece.on_host ? Lane::kHost : Lane::kBeside,
                                               .cost = piece.cost,
                                               .reads = piece.reads,
                                               .writes = piece.writes,
                                               .work = &piece},
                                              {last, buffer.left});
  buffer.updated = piece.updated;
}

void HostUpdates::put(const Step& step) {
  const Unit& unit = *step.first;
  Piece& piece = *step.second;
  Buffer& buffer = buffer_of(piece);
  const auto run = [&](const Tensor& tensor) {
    return tensor.flat(piece.first, piece.count);
  };
  const auto staged_or = [&](const Tensor& staged, const Tensor& whole) {
    return staged.present() ? staged.flat(0, piece.count) : run(whole);
  };
  if (piece.on_host) {
    const Tensor weights = staged_or(buffer.tensors[1], unit.here.master);
    piece.leaving[0] =
        parts_.transfers.start_in(run(unit.device_value), weights, {piece.updated, {}});
    if (buffer.tensors[1].present()) buffer.left = piece.leaving[0];
    return;
  }
  const std::array here = {unit.here.master, unit.here.m, unit.here.v};
  const std::array there = {staged_or(buffer.tensors[0], unit.device_value),
                            buffer.tensors[1].flat(0, piece.count),
                            buffer.tensors[2].flat(0, piece.count)};
  for (std::size_t i = 0; i < here.size(); ++i) {
    piece.leaving[i] = parts_.transfers.start_out(run(here[i]), there[i], {piece.updated, {}});
  }
  buffer.left = piece.leaving[2];
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
  advance(finished.last_step + kStepsAhead);
  for (Piece& piece : finished.pieces) {
    for (Token& token : piece.coming) {
      parts_.transfers.wait(std::exchange(token, {}));
    }
    parts_.transfers.wait(std::exchange(piece.updated, {}));
    const bool is_staged = !piece.on_host && buffer_of(piece).tensors[0].present();
    for (std::size_t i = 0; i < piece.leaving.size(); ++i) {
      const Token token = std::exchange(piece.leaving[i], {});
      // The values themselves leave where they are the masters.
      if (piece.on_host || (i == 0 && !is_staged)) {
        parts_.transfers.wait(token);
      } else {
        state_back_.push_back(token);
      }
    }
  }
  finished.state = State::kSettled;
  if (is_settled()) wait_for_state();
  return true;
}

// When no forward waits for anything more: what a step starts it waits for itself.
void HostUpdates::wait_for_state() {
  for (const Token token : state_back_) {
    parts_.transfers.wait(token);
  }
  state_back_.clear();
}

bool HostUpdates::is_settled() const {
  return std::all_of(units_.begin(), units_.end(),
                     [](const Unit& unit) { return unit.state == State::kSettled; });
}

void HostUpdates::wait_for_host() {
  parts_.transfers.drain();
  throw_fault();
}

void HostUpdates::drop() noexcept {
  for (Unit& unit : units_) {
    if (unit.state == State::kDue) unit.state = State::kSettled;
  }
}

}  // namespace orthant
