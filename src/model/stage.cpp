#include "model/stage.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "pipeline/boundary.h"

namespace orthant {
namespace {

int longest(const std::vector<std::unique_ptr<Chunk>>& chunks) {
  int most = 0;
  for (const auto& chunk : chunks) {
    most = std::max(most, chunk->num_layers());
  }
  return most;
}

}  // namespace

ModelStage::ModelStage(const std::vector<std::unique_ptr<Chunk>>& chunks,
                       const Placement& placement, const Sizes& sizes, const Parts& parts)
    : sizes_(sizes),
      parts_(parts),
      slots_(parts.slots, longest(chunks), static_cast<int>(chunks.size())),
      loader_(parts.device, sizes.B, sizes.S) {
  int first_layer = 0;
  for (const auto& chunk : chunks) {
    chunks_.push_back({.chunk = *chunk,
                       .first_layer = first_layer,
                       .act_in = {},
                       .act_out = {},
                       .grad_in = {},
                       .grad_out = {}});
    first_layer += chunk->num_layers();
  }
  add_borders(placement);
}

// Where two parts of this rank meet, what one writes and the other reads is one buffer.
void ModelStage::add_borders(const Placement& placement) {
  const int rank = parts_.mesh.coord(Axis::kPp);
  const auto buffer = [&] {
    return parts_.messages.alloc({sizes_.B * sizes_.S, sizes_.C}, sizes_.compute,
                                 MemClass::kCommunication);
  };
  const auto neighbour = [&](int part) -> Part* {
    const Placement::Place place = placement.at(part);
    return place.rank == rank ? &chunks_[static_cast<std::size_t>(place.chunk)] : nullptr;
  };
  for (std::size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
    Part& own = chunks_[chunk];
    const int part = placement.part_at(rank, static_cast<int>(chunk));
    if (part > 0) {
      const Part* before = neighbour(part - 1);
      own.act_in = before != nullptr ? before->act_out : buffer();
      own.grad_out = before != nullptr ? before->grad_in : buffer();
    }
    if (part < placement.num_parts() - 1) {
      own.act_out = buffer();
      own.grad_in = buffer();
    }
  }
}

std::vector<int> ModelStage::uses(const RankActions& actions) const {
  std::vector<int> units;
  for (const Action& action : actions) {
    if (!is_compute(action.kind)) continue;
    const Chunk& chunk = chunks_[static_cast<std::size_t>(action.chunk)].chunk;
    const int layers = chunk.num_layers();
    for (int i = 0; i < layers; ++i) {
      const auto& of_layer = chunk.units_of(is_backward(action.kind) ? layers - 1 - i : i);
      units.insert(units.end(), of_layer.begin(), of_layer.end());
    }
  }
  return units;
}

void ModelStage::begin(const Run& run) {
  run_ = run;
  slots_.begin(run.list);
}

Context ModelStage::context(const Slots::Slot& slot) {
  return {.ops = parts_.ops,
          .mesh = parts_.mesh,
          .work = parts_.work,
          .constants = parts_.constants,
          .step_state = parts_.step_state,
          .mode = run_.mode,
          .micro = slot.batch};
}

void ModelStage::open(int chunk, int micro) {
  Slots::Slot& slot = slots_.open(chunk, micro);
  const HostMicro* host =
      run_.micros.empty() ? nullptr : &run_.micros[static_cast<std::size_t>(micro)];
  slot.batch = loader_.load(slot.stash, host);
}

void ModelStage::forward(int chunk, int micro) {
  const Part& own = part(chunk);
  Slots::Slot& slot = slots_.at(chunk, micro);
  Context ctx = context(slot);
  const Shape shape = {sizes_.B * sizes_.S, sizes_.C};
  Frame frame(parts_.work);
  // A layer reads the addend of the layer before it while it writes its own.
  const Tensor addends[2] = {frame.alloc(shape, sizes_.compute),
                             frame.alloc(shape, sizes_.compute)};
  Flow flow = enter(own, slot.stash);
  for (int i = 0; i < own.chunk.num_layers(); ++i) {
    const Layer& layer = own.chunk.layer(i);
    const Where where(parts_.ledger, layer.name());
    for (const int unit : own.chunk.units_of(i)) {
      parts_.store.use(unit);
    }
    Flow out{.x = {}, .pending = addends[i % 2], .ready = {}};
    if (&layer != own.chunk.head()) out.x = slot.stash.alloc(shape, sizes_.compute);
    layer.forward(ctx, flow, out, slot.stash);
    if (probe_.present()) probe(own, i, out, slot.stash);
    for (const int unit : own.chunk.units_of(i)) {
      parts_.store.release(unit);
    }
    flow = out;
  }
  if (own.chunk.head() == nullptr) {
    leave(own, flow);
  } else if (observer_) {
    observer_(micro, own.chunk.head()->saved(slot.stash));
  }
}

// The next receive may land in the buffer: what is needed later is taken along.
Flow ModelStage::enter(const Part& part, Stash& stash) {
  Flow flow;
  if (!part.act_in.present()) return flow;
  flow.x = stash.alloc(part.act_in.shape, sizes_.compute);
  parts_.ops.run(Copy{.y = flow.x, .x = part.act_in});
  return flow;
}

void ModelStage::leave(const Part& part, const Flow& flow) {
  parts_.mesh.tp().wait(flow.ready);
  if (flow.pending.present()) {
    parts_.ops.run(Add{.y = part.act_out, .a = flow.x, .b = flow.pending});
  } else {
    parts_.ops.run(Copy{.y = part.act_out, .x = flow.x});
  }
}

void ModelStage::run_backward(int chunk, int micro, Half half) {
  const Part& own = part(chunk);
  Slots::Slot& slot = slots_.at(chunk, micro);
  Context ctx = context(slot);
  const auto closing =
      micro == run_.num_micros - 1 ? ParamStore::Micro::kLast : ParamStore::Micro::kMore;
  Tensor dy;
  if (half != Half::kWeight && own.grad_in.present()) {
    dy = slot.stash.alloc(own.grad_in.shape, sizes_.compute);
    parts_.ops.run(Copy{.y = dy, .x = own.grad_in});
  }
  for (int i = own.chunk.num_layers() - 1; i >= 0; --i) {
    const Layer& layer = own.chunk.layer(i);
    const Where where(parts_.ledger, layer.name());
    for (const int unit : own.chunk.units_of(i)) {
      parts_.store.use(unit);
      if (half != Half::kInput) parts_.store.open_grads(unit);
    }
    if (half != Half::kWeight) dy = layer.backward_input(ctx, dy, slot.stash);
    if (half != Half::kInput) layer.backward_weight(ctx, slot.stash);
    for (const int unit : own.chunk.units_of(i)) {
      if (half != Half::kInput) parts_.store.close_grads(unit, closing);
      parts_.store.release(unit);
    }
  }
  if (half != Half::kWeight && own.grad_out.present()) {
    parts_.ops.run(Copy{.y = own.grad_out, .x = dy});
  }
}

// What the layer leaves, or the head's losses.
void ModelStage::probe(const Part& part, int i, Flow& out, Stash& stash) {
  const Tensor count = probe_.flat(part.first_layer + i, 1);
  parts_.mesh.tp().wait(std::exchange(out.ready, Token{}));
  if (&part.chunk.layer(i) == part.chunk.head()) {
    parts_.ops.run(CountNonFinite{.count = count, .x = part.chunk.head()->saved(stash).loss});
  }
  for (const Tensor& tensor : {out.x, out.pending}) {
    if (tensor.present()) parts_.ops.run(CountNonFinite{.count = count, .x = tensor});
  }
}

}  // namespace orthant
