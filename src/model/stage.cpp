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

int most_leaving(const std::vector<std::unique_ptr<Chunk>>& chunks) {
  int most = 0;
  for (const auto& chunk : chunks) {
    most = std::max(most, chunk->num_leaving());
  }
  return most;
}

// Whether the memory of layer i's output is needed when the next layer has read it.
bool output_stays(const Chunk& chunk, int i) {
  const bool is_last = i + 1 == chunk.num_layers();
  return chunk.layer(i).keeps_output() || (!is_last && chunk.layer(i + 1).keeps_input());
}

bool has_passing_rows(const Chunk& chunk) {
  for (int i = 0; i < chunk.num_layers(); ++i) {
    const bool passes = &chunk.layer(i) != chunk.head() && !output_stays(chunk, i);
    if (passes || !chunk.layer(i).keeps_input()) return true;
  }
  return false;
}

}  // namespace

ModelStage::ModelStage(const std::vector<std::unique_ptr<Chunk>>& chunks,
                       const Placement& placement, const Sizes& sizes, const Parts& parts)
    : sizes_(sizes),
      all_rows_({sizes.B * sizes.S, sizes.C}),
      own_rows_(chunks.front()->rows() == Rows::kAll
                    ? all_rows_
                    : all_rows_.with(0, all_rows_[0] / parts.mesh.tp().size())),
      parts_(parts),
      slots_(parts.slots, parts.lates, longest(chunks), static_cast<int>(chunks.size())),
      again_(parts.again, 1),
      loader_(parts.device, sizes.B, sizes.S, sizes.by_document) {
  int first_layer = 0;
  for (const auto& chunk : chunks) {
    chunks_.push_back({.chunk = *chunk,
                       .first_layer = first_layer,
                       .act_in = {},
                       .act_out = {},
                       .grad_in = {},
                       .grad_out = {},
                       .has_passing = has_passing_rows(*chunk)});
    first_layer += chunk->num_layers();
  }
  if (parts.offload != nullptr) slots_.add_hosts(parts.hosts, most_leaving(chunks));
  add_borders(placement);
}

// Where two parts of this rank meet, what one writes and the other reads is one buffer.
void ModelStage::add_borders(const Placement& placement) {
  const int rank = parts_.mesh.coord(Axis::kPp);
  const auto buffer = [&] {
    return parts_.messages.alloc(own_rows_, sizes_.compute, MemClass::kCommunication);
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
      const int layer = is_backward(action.kind) ? layers - 1 - i : i;
      const bool is_idle =
          action.kind == Action::Kind::kBackwardWeight && chunk.layer(layer).joins_halves();
      if (is_idle) continue;
      const auto& of_layer = chunk.units_of(layer);
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
          .micro = slot.batch,
          .again = &again_};
}

void ModelStage::open(int chunk, int micro) {
  Slots::Slot& slot = slots_.open(chunk, micro);
  const HostMicro* host =
      run_.micros.empty() ? nullptr : &run_.micros[static_cast<std::size_t>(micro)];
  slot.batch = loader_.load(slot.stash, host);
}

void ModelStage::forward(int chunk, int micro) {
  begin_action('F', chunk, micro);
  const Part& own = part(chunk);
  Slots::Slot& slot = slots_.at(chunk, micro);
  Context ctx = context(slot);
  Frame frame(parts_.work);
  // A layer reads the addend of the layer before it while it writes its own.
  const Tensor addends[2] = {frame.alloc(all_rows_, sizes_.compute),
                             frame.alloc(all_rows_, sizes_.compute)};
  const std::array<Tensor, 2> passing = passing_rows(own, frame);
  Flow flow = enter(own, slot.stash);
  for (int i = 0; i < own.chunk.num_layers(); ++i) {
    const Layer& layer = own.chunk.layer(i);
    const Where where(parts_.ledger, layer.name());
    for (const int unit : own.chunk.units_of(i)) {
      parts_.store.use(unit);
    }
    const int place = own.chunk.leaving_place(i);
    if (place >= 0) {
      Arena& window = parts_.offload->open(place);
      slot.stash.use(window, window);
    }
    Flow out{.x = {}, .pending = addends[i % 2], .ready = {}};
    if (&layer != own.chunk.head()) {
      out.x = output_stays(own.chunk, i) ? slot.stash.alloc(own_rows_, sizes_.compute)
                                         : passing[static_cast<std::size_t>(i % 2)];
    }
    layer.forward(ctx, flow, out, slot.stash);
    if (probe_.present()) probe(own, i, out, slot.stash);
    if (place >= 0 && run_.list == Slots::List::kTraining) {
      parts_.offload->leave(place, slot.parcels[static_cast<std::size_t>(place)], *slot.host);
    }
    slot.settle();
    for (const int unit : own.chunk.units_of(i)) {
      parts_.store.release(unit);
    }
    flow = out;
  }
  if (own.chunk.head() == nullptr) {
    complete(ctx, own.act_out, flow);
  } else if (observer_) {
    observer_(micro, own.chunk.head()->saved(slot.stash));
  }
}

// The next receive may land in the buffer: what is needed later is taken along.
Flow ModelStage::enter(const Part& part, Stash& stash) {
  Flow flow{.x = part.act_in, .pending = {}, .ready = {}};
  if (part.act_in.absent() || !part.chunk.layer(0).keeps_input()) return flow;
  flow.x = stash.alloc(part.act_in.shape, sizes_.compute);
  parts_.ops.run(Copy{.y = flow.x, .x = part.act_in});
  return flow;
}

// Memory for what a layer leaves to the next alone.
std::array<Tensor, 2> ModelStage::passing_rows(const Part& part, Frame& frame) const {
  if (!part.has_passing) return {};
  return {frame.alloc(own_rows_, sizes_.compute), frame.alloc(own_rows_, sizes_.compute)};
}

void ModelStage::begin_action(char kind, int chunk, int micro) {
  parts_.ledger.begin_action(
      {.kind = kind, .chunk = static_cast<std::uint8_t>(chunk), .micro = micro});
}

void ModelStage::run_backward(int chunk, int micro, Half half) {
  begin_action(half == Half::kBoth ? 'B' : half == Half::kInput ? 'I' : 'W', chunk, micro);
  const Part& own = part(chunk);
  Slots::Slot& slot = half == Half::kInput ? slots_.split(chunk, micro) : slots_.at(chunk, micro);
  Context ctx = context(slot);
  const auto closing =
      micro == run_.num_micros - 1 ? ParamStore::Micro::kLast : ParamStore::Micro::kMore;
  Frame frame(parts_.work);
  const std::array<Tensor, 2> passing = passing_rows(own, frame);
  Tensor dy = own.grad_in;
  bool dy_stays = false;
  const int num_layers = own.chunk.num_layers();
  fetch_below(own, num_layers, half, slot);
  for (int i = num_layers - 1; i >= 0; --i) {
    const Layer& layer = own.chunk.layer(i);
    if (!does_input(half) && !does_weight(half, layer)) continue;
    const Where where(parts_.ledger, layer.name());
    for (const int unit : own.chunk.units_of(i)) {
      parts_.store.use(unit);
      if (does_weight(half, layer)) parts_.store.open_grads(unit);
    }
    const int place = own.chunk.leaving_place(i);
    if (place >= 0) {
      Arena& window = parts_.offload->arrive(place, slot.parcels[static_cast<std::size_t>(place)]);
      slot.stash.use(window, window);
      fetch_below(own, i, half, slot);
    }
    if (does_input(half)) {
      if (!does_weight(half, layer) && !dy_stays) dy = keep_gradient(slot.stash, dy);
      ctx.input = layer.keeps_input() ? Tensor{} : passing[static_cast<std::size_t>(i % 2)];
      dy = half == Half::kBoth ? layer.backward(ctx, dy, slot.stash)
                               : layer.backward_input(ctx, dy, slot.stash);
      dy_stays = layer.keeps_input();
    } else {
      layer.backward_weight(ctx, slot.stash);
    }
    if (place >= 0 && !does_weight(half, layer)) {
      parts_.offload->leave(place, slot.parcels[static_cast<std::size_t>(place)], *slot.host);
    }
    slot.settle();
    for (const int unit : own.chunk.units_of(i)) {
      if (does_weight(half, layer)) parts_.store.close_grads(unit, closing);
      parts_.store.release(unit);
    }
  }
  if (does_input(half) && own.grad_out.present()) {
    parts_.ops.run(Copy{.y = own.grad_out, .x = dy});
  }
}

bool ModelStage::does_weight(Half half, const Layer& layer) {
  return half == Half::kBoth || (half == Half::kInput) == layer.joins_halves();
}

// Starts to bring back the next layer below `layer` that has left and has work in this half.
void ModelStage::fetch_below(const Part& part, int layer, Half half, Slots::Slot& slot) {
  for (int i = layer - 1; i >= 0; --i) {
    const int place = part.chunk.leaving_place(i);
    if (place < 0) continue;
    if (!does_input(half) && !does_weight(half, part.chunk.layer(i))) continue;
    parts_.offload->fetch(place, slot.parcels[static_cast<std::size_t>(place)]);
    return;
  }
}

// For a weight half that comes later.
Tensor ModelStage::keep_gradient(Stash& stash, const Tensor& dy) {
  if (dy.absent()) return dy;
  const Tensor kept = stash.alloc_late(dy.shape, dy.dtype);
  parts_.ops.run(Copy{.y = kept, .x = dy});
  return kept;
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
