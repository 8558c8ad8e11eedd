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
    parts.mesh.tp().give_turns([this] { return turns_->give(); });
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

// Only a training has halves. Those of rows that tp ranks have in part are again such parts.
std::vector<ModelStage::Share> ModelStage::shares_of(Slots::Slot& slot) {
  const bool takes_turns = turns_ && run_.mode == Mode::kTrain;
  const std::size_t count = takes_turns ? slot.stashes.size() : 1;
  std::vector<Share> shares;
  shares.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    MicroBatch micro = slot.batch;
    if (takes_turns) {
      micro.B /= static_cast<std::int64_t>(count);
      for (Tensor* tensor : {&micro.tokens, &micro.labels, &micro.positions, &micro.sample_ids}) {
        *tensor = rows_of(*tensor, i);
      }
    }
    shares.push_back({.ctx = {.ops = parts_.ops,
                              .mesh = parts_.mesh,
                              .work = *parts_.works[i],
                              .constants = parts_.constants,
                              .step_state = parts_.step_state,
                              .mode = run_.mode,
                              .micro = micro,
                              .again = &agains_[i],
                              .turns = takes_turns ? &*turns_ : nullptr},
                      .stash = slot.stashes[i]});
  }
  return shares;
}

// Of a tensor with all rows of a micro-batch, which may be absent.
Tensor ModelStage::rows_of(const Tensor& whole, std::size_t share) const {
  if (whole.absent() || !turns_ || run_.mode != Mode::kTrain) return whole;
  const std::int64_t half = whole.shape[0] / Turns::kBodies;
  return whole.rows(static_cast<std::int64_t>(share) * half, half);
}

// act(i) of each share: in turns where there are two.
template <class Act>
void ModelStage::for_shares(const std::vector<Share>& shares, const Act& act) {
  if (shares.size() == 1) return act(std::size_t{0});
  turns_->run([&act](int body) { act(static_cast<std::size_t>(body)); });
}

void ModelStage::open(int chunk, int micro) {
  Slots::Slot& slot = slots_.open(chunk, micro);
  const HostMicro* host =
      run_.micros.empty() ? nullptr : &run_.micros[static_cast<std::size_t>(micro)];
  slot.batch = loader_.load(slot.stashes.front(), host);
}

void ModelStage::forward(int chunk, int micro) {
  begin_action('F', chunk, micro);
  const Part& own = part(chunk);
  Slots::Slot& slot = slots_.at(chunk, micro);
  std::vector<Share> shares = shares_of(slot);
  Frame frame(*parts_.works.front());
  // A layer reads the addend of the layer before it while it writes its own.
  const Tensor addends[2] = {frame.alloc(all_rows_, sizes_.compute),
                             frame.alloc(all_rows_, sizes_.compute)};
  const std::array<Tensor, 2> passing = passing_rows(own, frame);
  const Flow entered = enter(own, slot.stashes.front());
  OfShares<Flow> flow;
  for (std::size_t share = 0; share < shares.size(); ++share) {
    flow[share].x = rows_of(entered.x, share);
  }
  for (int i = 0; i < own.chunk.num_layers(); ++i) {
    const Layer& layer = own.chunk.layer(i);
    const Where where(parts_.ledger, layer.name());
    for (const int unit : own.chunk.units_of(i)) {
      parts_.store.use(unit);
    }
    const int place = own.chunk.leaving_place(i);
    if (place >= 0) {
      Arena& window = parts_.offload->open(place);
      slot.use(window, window);
    }
    Tensor x;
    if (&layer != own.chunk.head()) {
      x = output_stays(own.chunk, i) ? slot.stashes.front().alloc(own_rows_, sizes_.compute)
                                     : passing[static_cast<std::size_t>(i % 2)];
    }
    OfShares<Flow> out;
    for_shares(shares, [&](std::size_t share) {
      out[share] = {.x = rows_of(x, share), .pending = rows_of(addends[i % 2], share), .ready = {}};
      layer.forward(shares[share].ctx, flow[share], out[share], shares[share].stash);
    });
    for (std::size_t share = 0; probe_.present() && share < shares.size(); ++share) {
      probe(own, i, out[share], shares[share]);
    }
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
    for (std::size_t share = 0; share < shares.size(); ++share) {
      complete(shares[share].ctx, rows_of(own.act_out, share), flow[share]);
    }
  } else if (observer_) {
    ORTHANT_CHECK(shares.size() == 1, "the head is observed while halves take turns");
    observer_(micro, own.chunk.head()->saved(slot.stashes.front()));
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
  std::vector<Share> shares = shares_of(slot);
  const auto closing =
      micro == run_.num_micros - 1 ? ParamStore::Micro::kLast : ParamStore::Micro::kMore;
  Frame frame(*parts_.works.front());
  const std::array<Tensor, 2> passing = passing_rows(own, frame);
  OfShares<Tensor> dy;
  for (std::size_t share = 0; share < shares.size(); ++share) {
    dy[share] = rows_of(own.grad_in, share);
  }
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
      slot.use(window, window);
      fetch_below(own, i, half, slot);
    }
    const bool keeps_dy = does_input(half) && !does_weight(half, layer) && !dy_stays;
    for (std::size_t share = 0; keeps_dy && share < shares.size(); ++share) {
      dy[share] = keep_gradient(shares[share].stash, dy[share]);
    }
    const Tensor input = layer.keeps_input() ? Tensor{} : passing[static_cast<std::size_t>(i % 2)];
    run_layer_backward(layer, half, shares, dy, input);
    if (does_input(half)) dy_stays = layer.keeps_input();
    if (place >= 0 && !does_weight(half, layer)) {
      parts_.offload->leave(place, slot.parcels[static_cast<std::size_t>(place)], *slot.host);
    }
    slot.settle();
    for (const int unit : own.chunk.units_of(i)) {
      if (does_weight(half, layer)) parts_.store.close_grads(unit, closing);
      parts_.store.release(unit);
    }
  }
  if (!does_input(half) || own.grad_out.absent()) return;
  for (std::size_t share = 0; share < shares.size(); ++share) {
    parts_.ops.run(Copy{.y = rows_of(own.grad_out, share), .x = dy[share]});
  }
}

// `dy` becomes the gradient of the layer's input, for which `input` may be memory.
void ModelStage::run_layer_backward(const Layer& layer, Half half, std::vector<Share>& shares,
                                    OfShares<Tensor>& dy, const Tensor& input) {
  for_shares(shares, [&](std::size_t share) {
    auto& [ctx, stash] = shares[share];
    if (!does_input(half)) return layer.backward_weight(ctx, stash);
    ctx.input = rows_of(input, share);
    dy[share] = half == Half::kBoth ? layer.backward(ctx, dy[share], stash)
                                    : layer.backward_input(ctx, dy[share], stash);
  });
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
void ModelStage::probe(const Part& part, int i, Flow& out, Share& share) {
  const Tensor count = probe_.flat(part.first_layer + i, 1);
  parts_.mesh.tp().wait(std::exchange(out.ready, Token{}));
  if (&part.chunk.layer(i) == part.chunk.head()) {
    const LmHead::Saved& saved = part.chunk.head()->saved(share.stash);
    parts_.ops.run(CountNonFinite{.count = count, .x = saved.loss});
  }
  for (const Tensor& tensor : {out.x, out.pending}) {
    if (tensor.present()) parts_.ops.run(CountNonFinite{.count = count, .x = tensor});
  }
}

}  // namespace orthant
