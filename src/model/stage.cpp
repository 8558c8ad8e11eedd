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
      slots_(parts.slots, parts.lates, longest(chunks), static_cast<int>(chunks.size()),
             static_cast<int>(parts.works.size())),
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
  for (Arena* again : parts.agains) {
    agains_.emplace_back(*again, 1);
  }
  if (parts.works.size() > 1) {
    turns_.emplace();
    parts.mesh.tp().give_turns([this] { return give_turn(); });
    give_midway_ = [this] {
      const Where here(parts_.ledger, parts_.ledger.where());
      turns_->give_midway();
    };
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

void ModelStage::open(int chunk, int micro) {
  Slots::Slot& slot = slots_.open(chunk, micro);
  const HostMicro* host =
      run_.micros.empty() ? nullptr : &run_.micros[static_cast<std::size_t>(micro)];
  slot.batch = loader_.load(slot.stashes.front(), host);
}

ModelStage::Pass ModelStage::begin_pass(int chunk, Slots::Slot& slot, Frame& frame) {
  Pass pass{.part = part(chunk), .slot = slot, .shares = shares_of(slot)};
  if (pass.part.has_passing) {
    for (Tensor& rows : pass.passing) {
      rows = frame.alloc(own_rows_, sizes_.compute);
    }
  }
  pass.visits.resize(static_cast<std::size_t>(pass.part.chunk.num_layers()));
  return pass;
}

void ModelStage::forward(int chunk, int micro) {
  begin_action('F', chunk, micro);
  Slots::Slot& slot = slots_.at(chunk, micro);
  Frame frame(*parts_.works.front());
  // A layer reads the addend of the layer before it while it writes its own.
  const std::array addends = {frame.alloc(all_rows_, sizes_.compute),
                              frame.alloc(all_rows_, sizes_.compute)};
  Pass pass = begin_pass(chunk, slot, frame);
  pass.addends = addends;
  pass.entered = enter(pass.part, slot.stashes.front());
  for_shares(pass, [&](std::size_t share) { forward_share(pass, share); });
  const LmHead* head = pass.part.chunk.head();
  if (head == nullptr || !observer_) return;
  ORTHANT_CHECK(pass.shares.size() == 1, "the head is observed while halves take turns");
  observer_(micro, head->saved(slot.stashes.front()));
}

void ModelStage::forward_share(Pass& pass, std::size_t share) {
  const Chunk& chunk = pass.part.chunk;
  auto& [ctx, stash] = pass.shares[share];
  const Shape rows = rows_of(own_rows_, pass);
  Flow flow{.x = rows_of(pass.entered, share), .pending = {}, .ready = {}};
  for (int i = 0; i < chunk.num_layers(); ++i) {
    const Layer& layer = chunk.layer(i);
    const Where where(parts_.ledger, layer.name());
    const auto turn = static_cast<std::size_t>(i % 2);
    if (comes_first(pass, share, i, i - 1)) open_forward(pass, i);
    Flow out{.x = {}, .pending = rows_of(pass.addends[turn], share), .ready = {}};
    if (&layer != chunk.head()) {
      out.x = output_stays(chunk, i) ? stash.alloc(rows, sizes_.compute)
                                     : rows_of(pass.passing[turn], share);
    }
    layer.forward(ctx, flow, out, stash);
    if (probe_.present()) probe(pass.part, i, out, stash);
    if (goes_last(pass, i)) close_forward(pass, i);
    flow = out;
  }
  if (chunk.head() == nullptr) complete(ctx, rows_of(pass.part.act_out, share), flow);
}

void ModelStage::open_forward(Pass& pass, int i) {
  for (const int unit : pass.part.chunk.units_of(i)) {
    parts_.store.use(unit);
  }
  const int place = pass.part.chunk.leaving_place(i);
  if (place < 0) return;
  Arena& window = parts_.offload->open(place);
  pass.slot.use(window, window);
}

void ModelStage::close_forward(Pass& pass, int i) {
  const int place = pass.part.chunk.leaving_place(i);
  if (place >= 0 && run_.list == Slots::List::kTraining) {
    parts_.offload->leave(place, pass.slot.parcels[static_cast<std::size_t>(place)],
                          *pass.slot.host);
  }
  pass.slot.settle();
  for (const int unit : pass.part.chunk.units_of(i)) {
    parts_.store.release(unit);
  }
}

// The next receive may land in the buffer: what is needed later is taken along.
Tensor ModelStage::enter(const Part& part, Stash& stash) {
  if (part.act_in.absent() || !part.chunk.layer(0).keeps_input()) return part.act_in;
  const Tensor kept = stash.alloc(part.act_in.shape, sizes_.compute);
  parts_.ops.run(Copy{.y = kept, .x = part.act_in});
  return kept;
}

void ModelStage::begin_action(char kind, int chunk, int micro) {
  parts_.ledger.begin_action(
      {.kind = kind, .chunk = static_cast<std::uint8_t>(chunk), .micro = micro});
}

void ModelStage::run_backward(int chunk, int micro, Half half) {
  begin_action(half == Half::kBoth ? 'B' : half == Half::kInput ? 'I' : 'W', chunk, micro);
  Slots::Slot& slot = half == Half::kInput ? slots_.split(chunk, micro) : slots_.at(chunk, micro);
  Frame frame(*parts_.works.front());
  Pass pass = begin_pass(chunk, slot, frame);
  pass.half = half;
  pass.closing = micro == run_.num_micros - 1 ? ParamStore::Micro::kLast : ParamStore::Micro::kMore;
  fetch_below(pass, pass.part.chunk.num_layers());
  for_shares(pass, [&](std::size_t share) { backward_share(pass, share); });
}

void ModelStage::backward_share(Pass& pass, std::size_t share) {
  const Chunk& chunk = pass.part.chunk;
  auto& [ctx, stash] = pass.shares[share];
  Tensor dy = rows_of(pass.part.grad_in, share);
  bool dy_stays = false;
  int before = -1;
  for (int i = chunk.num_layers() - 1; i >= 0; --i) {
    const Layer& layer = chunk.layer(i);
    const bool for_weights = does_weight(pass.half, layer);
    if (!does_input(pass.half) && !for_weights) continue;
    const Where where(parts_.ledger, layer.name());
    if (comes_first(pass, share, i, std::exchange(before, i))) open_backward(pass, i);
    if (does_input(pass.half)) {
      if (!for_weights && !dy_stays) dy = keep_gradient(stash, dy);
      const Tensor& passing = pass.passing[static_cast<std::size_t>(i % 2)];
      ctx.input = layer.keeps_input() ? Tensor{} : rows_of(passing, share);
      dy = pass.half == Half::kBoth ? layer.backward(ctx, dy, stash)
                                    : layer.backward_input(ctx, dy, stash);
      dy_stays = layer.keeps_input();
    } else {
      layer.backward_weight(ctx, stash);
    }
    if (goes_last(pass, i)) close_backward(pass, i);
  }
  if (does_input(pass.half) && pass.part.grad_out.present()) {
    parts_.ops.run(Copy{.y = rows_of(pass.part.grad_out, share), .x = dy});
  }
}

void ModelStage::open_backward(Pass& pass, int i) {
  const Chunk& chunk = pass.part.chunk;
  for (const int unit : chunk.units_of(i)) {
    parts_.store.use(unit);
    if (does_weight(pass.half, chunk.layer(i))) parts_.store.open_grads(unit);
  }
  const int place = chunk.leaving_place(i);
  if (place < 0) return;
  Arena& window = parts_.offload->arrive(place, pass.slot.parcels[static_cast<std::size_t>(place)]);
  pass.slot.use(window, window);
  fetch_below(pass, i);
}

void ModelStage::close_backward(Pass& pass, int i) {
  const Chunk& chunk = pass.part.chunk;
  const bool for_weights = does_weight(pass.half, chunk.layer(i));
  const int place = chunk.leaving_place(i);
  if (place >= 0 && !for_weights) {
    parts_.offload->leave(place, pass.slot.parcels[static_cast<std::size_t>(place)],
                          *pass.slot.host);
  }
  pass.slot.settle();
  for (const int unit : chunk.units_of(i)) {
    if (for_weights) parts_.store.close_grads(unit, pass.closing);
    parts_.store.release(unit);
  }
}

bool ModelStage::does_weight(Half half, const Layer& layer) {
  return half == Half::kBoth || (half == Half::kInput) == layer.joins_halves();
}

// Starts to bring back the next layer below `layer` that has left and has work in this pass.
void ModelStage::fetch_below(Pass& pass, int layer) {
  const Chunk& chunk = pass.part.chunk;
  for (int i = layer - 1; i >= 0; --i) {
    const int place = chunk.leaving_place(i);
    if (place < 0) continue;
    if (!does_input(pass.half) && !does_weight(pass.half, chunk.layer(i))) continue;
    parts_.offload->fetch(place, pass.slot.parcels[static_cast<std::size_t>(place)]);
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
    const LmHead::Saved& saved = part.chunk.head()->saved(stash);
    parts_.ops.run(CountNonFinite{.count = count, .x = saved.loss});
  }
  for (const Tensor& tensor : {out.x, out.pending}) {
    if (tensor.present()) parts_.ops.run(CountNonFinite{.count = count, .x = tensor});
  }
}

}  // namespace orthant
