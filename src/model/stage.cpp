#include "model/stage.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace orthant {

ModelStage::ModelStage(const ModelConfig& config, const Chunk& chunk, std::int64_t B,
                       std::int64_t S, DType compute, const Parts& parts)
    : hidden_(config.hidden),
      chunk_(chunk),
      B_(B),
      S_(S),
      compute_(compute),
      parts_(parts) {
  const Shape border = {B * S, config.hidden};
  const auto buffer = [&] {
    return parts_.messages.alloc(border, compute, MemClass::kCommunication);
  };
  if (!chunk.range().has_embedding) {
    act_in_ = buffer();
    grad_out_ = buffer();
  }
  if (!chunk.range().has_head) {
    act_out_ = buffer();
    grad_in_ = buffer();
  }
  for (Arena* arena : parts_.slots) {
    slots_.push_back({.arena = arena, .stash = Stash(*arena, chunk.num_layers()), .batch = {}});
  }
  staging_.resize(static_cast<std::size_t>(B * S));
}

void ModelStage::begin(Mode mode, std::span<const HostMicro> micros, int num_micros) {
  mode_ = mode;
  micros_ = micros;
  num_micros_ = num_micros;
}

ModelStage::Slot& ModelStage::slot_of(int micro) {
  const auto found = std::find_if(slots_.begin(), slots_.end(),
                                  [micro](const Slot& s) { return s.micro == micro; });
  ORTHANT_CHECK(found != slots_.end(), "{} slots are planned, micro-batch {} has none",
                slots_.size(), micro);
  return *found;
}

Context ModelStage::context(const Slot& slot) {
  return {.ops = parts_.ops,
          .mesh = parts_.mesh,
          .work = parts_.work,
          .constants = parts_.constants,
          .step_state = parts_.step_state,
          .mode = mode_,
          .micro = slot.batch};
}

void ModelStage::open(int /*chunk*/, int micro) {
  Slot& slot = slot_of(-1);
  slot.micro = micro;
  load_batch(slot, micro);
}

void ModelStage::close(int /*chunk*/, int micro) {
  Slot& slot = slot_of(micro);
  slot.stash.clear();
  slot.arena->rewind({});
  slot.micro = -1;
}

// The tokens travel to every stage by themselves: all ranks read the same data plan.
void ModelStage::load_batch(Slot& slot, int micro) {
  const std::int64_t T = B_ * S_;
  const auto alloc = [&](const Shape& shape, DType type) {
    return slot.stash.alloc(shape, type);
  };
  slot.batch = {.B = B_,
                .S = S_,
                .tokens = alloc({T}, DType::kI32),
                .labels = alloc({T}, DType::kI32),
                .positions = alloc({T}, DType::kI32),
                .sample_ids = alloc({B_}, DType::kI64)};
  if (micros_.empty()) return;
  const HostMicro& host = micros_[static_cast<std::size_t>(micro)];
  const auto send = [&](const Tensor& to, auto value_at) {
    for (std::int64_t b = 0; b < B_; ++b) {
      for (std::int64_t s = 0; s < S_; ++s) {
        staging_[static_cast<std::size_t>(b * S_ + s)] = value_at(b, s);
      }
    }
    parts_.device.to_device(to, std::as_bytes(std::span(staging_)));
  };
  const auto token = [&](std::int64_t b, std::int64_t s) {
    return host.tokens[static_cast<std::size_t>(b * (S_ + 1) + s)];
  };
  send(slot.batch.tokens, token);
  send(slot.batch.labels, [&](std::int64_t b, std::int64_t s) { return token(b, s + 1); });
  send(slot.batch.positions,
       [](std::int64_t, std::int64_t s) { return static_cast<std::int32_t>(s); });
  parts_.device.to_device(slot.batch.sample_ids, std::as_bytes(host.sample_ids));
}

void ModelStage::forward(int /*chunk*/, int micro) {
  Slot& slot = slot_of(micro);
  Context ctx = context(slot);
  const Shape shape = {B_ * S_, hidden_};
  Frame frame(parts_.work);
  // A layer reads the addend of the layer before it while it writes its own.
  const Tensor addends[2] = {frame.alloc(shape, compute_), frame.alloc(shape, compute_)};
  Flow flow;
  if (act_in_.present()) {
    flow.x = slot.stash.alloc(shape, compute_);
    parts_.ops.run(Copy{.y = flow.x, .x = act_in_});
  }
  for (int i = 0; i < chunk_.num_layers(); ++i) {
    const Layer& layer = chunk_.layer(i);
    const Where where(parts_.ledger, layer.name());
    for (const int unit : chunk_.units_of(i)) {
      parts_.store.use(unit);
    }
    Flow out{.x = {}, .pending = addends[i % 2], .ready = {}};
    if (&layer != chunk_.head()) out.x = slot.stash.alloc(shape, compute_);
    layer.forward(ctx, flow, out, slot.stash);
    if (probe_.present()) probe(i, out, slot.stash);
    for (const int unit : chunk_.units_of(i)) {
      parts_.store.release(unit);
    }
    flow = out;
  }
  if (chunk_.head() != nullptr) {
    if (observer_) observer_(micro, chunk_.head()->saved(slot.stash));
    return;
  }
  parts_.mesh.tp().wait(flow.ready);
  if (flow.pending.present()) {
    parts_.ops.run(Add{.y = act_out_, .a = flow.x, .b = flow.pending});
  } else {
    parts_.ops.run(Copy{.y = act_out_, .x = flow.x});
  }
}

void ModelStage::backward(int /*chunk*/, int micro) {
  run_backward(micro, Half::kBoth);
}
void ModelStage::backward_input(int /*chunk*/, int micro) {
  run_backward(micro, Half::kInput);
}
void ModelStage::backward_weight(int /*chunk*/, int micro) {
  run_backward(micro, Half::kWeight);
}

void ModelStage::run_backward(int micro, Half half) {
  Slot& slot = slot_of(micro);
  Context ctx = context(slot);
  const bool last = micro == num_micros_ - 1;
  Tensor dy;
  if (half != Half::kWeight && grad_in_.present()) {
    dy = slot.stash.alloc(grad_in_.shape, compute_);
    parts_.ops.run(Copy{.y = dy, .x = grad_in_});
  }
  for (int i = chunk_.num_layers() - 1; i >= 0; --i) {
    const Layer& layer = chunk_.layer(i);
    const Where where(parts_.ledger, layer.name());
    for (const int unit : chunk_.units_of(i)) {
      parts_.store.use(unit);
      if (half != Half::kInput) parts_.store.open_grads(unit);
    }
    if (half != Half::kWeight) dy = layer.backward_input(ctx, dy, slot.stash);
    if (half != Half::kInput) layer.backward_weight(ctx, slot.stash);
    for (const int unit : chunk_.units_of(i)) {
      if (half != Half::kInput) {
        parts_.store.close_grads(unit, last ? ParamStore::Micro::kLast : ParamStore::Micro::kMore);
      }
      parts_.store.release(unit);
    }
  }
  if (half != Half::kWeight && grad_out_.present()) parts_.ops.run(Copy{.y = grad_out_, .x = dy});
}

// What the layer leaves, or the head's losses.
void ModelStage::probe(int layer, Flow& out, Stash& stash) {
  const Tensor count = probe_.flat(layer, 1);
  parts_.mesh.tp().wait(std::exchange(out.ready, Token{}));
  if (&chunk_.layer(layer) == chunk_.head()) {
    parts_.ops.run(CountNonFinite{.count = count, .x = chunk_.head()->saved(stash).loss});
  }
  for (const Tensor& tensor : {out.x, out.pending}) {
    if (tensor.present()) parts_.ops.run(CountNonFinite{.count = count, .x = tensor});
  }
}

}  // namespace orthant
