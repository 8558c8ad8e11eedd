// LayerBed: one layer on one tensor-parallel rank with the formula backend, its parameters in a
// store, and what a forward and a backward need around it.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "comm/backends.h"
#include "layers/lm_head.h"
#include "params/param_store.h"

namespace orthant::test {

// Sizes of everything: small, and no two that must not be mixed up are equal.
inline constexpr std::int64_t B = 2, S = 3, T = B * S, C = 8, H = 4, D = 2, F = 12, V = 11;

// How a layer is run. None of it may change what it computes.
struct Way {
  int tp = 1;
  bool splits_rows = false;  // over tp
  bool in_halves = false;    // backward
  Again again = Again::kNothing;
  bool wraps = false;         // in a Recompute
  bool splits_saved = false;  // which keeps 1/tp of its input on each tp rank
};

struct Subject {
  const char* name;
  BlockConfig config;
  enum class Kind : std::uint8_t { kBlock, kFirst, kHead } kind = Kind::kBlock;
  // With id 0.
  std::function<std::unique_ptr<Layer>(const BlockConfig&, const Mesh&, const Way&)> make;
};

// Whole tensors by name: parameters, and the input "x".
using Values = std::map<std::string, std::vector<float>>;

// Reads from Values; what is not there yet is drawn.
class ValueSource final : public ParamSource {
 public:
  explicit ValueSource(Values& values) : values_(values) {}
  void read(const ParamSpec& param, StateKind state, std::int64_t first,
            std::span<float> into) const override {
    if (state != StateKind::kWeight) return std::fill(into.begin(), into.end(), 0.0F);
    const std::vector<float>& whole = drawn(values_, param.name, param.global.count(), 0.5);
    std::copy_n(whole.begin() + first, into.size(), into.begin());
  }
  static std::vector<float>& drawn(Values& values, const std::string& name, std::int64_t count,
                                   double std) {
    std::vector<float>& whole = values[name];
    for (auto i = static_cast<std::int64_t>(whole.size()); i < count; ++i) {
      whole.push_back(
          static_cast<float>(std * normal(77, stream_of(name), static_cast<std::uint64_t>(i))));
    }
    return whole;
  }

 private:
  Values& values_;
};

class LayerBed {
 public:
  LayerBed(ThreadWorld& world, int rank, const Subject& subject, const Way& way)
      : subject_(subject),
        way_(way),
        world_(world.join(rank, {.ledger = ledger_, .in_flight = in_flight_})),
        mesh_(MeshShape{.sizes = {way.tp, 1, 1, 1, 1}}, *world_, copies()),
        ops_(make_ops("ref", {.ledger = ledger_, .in_flight = in_flight_, .work = work_})),
        rows_(way.splits_rows ? Rows::kSplit : Rows::kAll),
        layer_(subject.make(config(), mesh_, way)),
        store_({{.name = "unit", .params = params()}}, {.sharding = zero(0)},
               {.ops = *ops_,
                .device = *device_,
                .mesh = mesh_,
                .params = params_,
                .staging = params_}) {
    state_ = params_.alloc(step_state_shape(), DType::kU8, MemClass::kOptimizer);
    make_micro();
    make_constants();
  }

  // The sum over the rows that this rank has of output times a fixed direction; of the head, the
  // mean loss.
  double forward(Values& values) {
    stash_.clear();
    stash_.use(slot_, way_.in_halves ? late_ : slot_);
    slot_.rewind({});
    late_.rewind({});
    store_.load(ValueSource(values));
    write_state();
    const Tensor all = slot_.alloc({T, C}, DType::kF32, MemClass::kActivations);
    fill(all, ValueSource::drawn(values, "x", T * C, 1.0));
    in_ = {.x = own(all), .pending = addend(), .ready = {}};
    if (subject_.kind == Subject::Kind::kFirst) in_ = {};
    Flow out{.x = stash_.alloc(own(all).shape, DType::kF32),
             .pending = slot_.alloc({T, C}, DType::kF32, MemClass::kActivations),
             .ready = {}};
    Context ctx = context();
    layer_->forward(ctx, in_, out, stash_);
    if (subject_.kind == Subject::Kind::kHead) return head_objective();
    out_ = slot_.alloc(own(all).shape, DType::kF32, MemClass::kActivations);
    complete(ctx, out_, out);
    double sum = 0;
    const Tensor dy = direction();
    for (std::int64_t i = 0; i < dy.count(); ++i) {
      sum += static_cast<double>(out_.ptr<float>()[i]) * dy.ptr<float>()[i];
    }
    return sum;
  }

  // Adds what this rank has of all gradients, "x" among them, to `grads`.
  void backward(Values& grads) {
    static constexpr int kUses[] = {0};
    store_.expect_uses(kUses);
    store_.begin_step();
    store_.use(0);
    store_.open_grads(0);
    Context ctx = context();
    if (!layer_->keeps_input())
      ctx.input = slot_.alloc({T, C}, DType::kF32, MemClass::kActivations);
    const Tensor dy = subject_.kind == Subject::Kind::kHead ? Tensor{} : direction();
    Tensor dx;
    if (way_.in_halves) {
      dx = layer_->backward_input(ctx, dy, stash_);
      spoil_work();
      layer_->backward_weight(ctx, stash_);
    } else {
      dx = layer_->backward(ctx, dy, stash_);
    }
    store_.close_grads(0, ParamStore::Micro::kLast);
    store_.release(0);
    store_.finish_grads();
    gather(dx, grads);
  }

 private:
  BlockConfig config() const {
    BlockConfig config = subject_.config;
    config.rows = rows_;
    config.again = way_.again;
    return config;
  }
  int copies() const {
    return static_cast<int>(std::max<std::int64_t>(1, way_.tp / subject_.config.G));
  }
  std::vector<Param*> params() {
    std::vector<Param*> all;
    layer_->collect(all);
    return all;
  }
  Context context() {
    return {.ops = *ops_,
            .mesh = mesh_,
            .work = work_,
            .constants = constants_,
            .step_state = state_,
            .mode = Mode::kTrain,
            .micro = micro_,
            .again = &again_stash_};
  }
  void write_state() {
    *reinterpret_cast<StepState*>(state_.data) = {.step = 3, .seed = 5, .inv_tokens = 0.25};
  }
  Tensor own(const Tensor& all) {
    const std::int64_t count = T / (rows_ == Rows::kSplit ? way_.tp : 1);
    return all.rows(rows_ == Rows::kSplit ? mesh_.tp().rank() * count : 0, count);
  }
  static void fill(const Tensor& tensor, const std::vector<float>& values) {
    std::copy(values.begin(), values.end(), tensor.ptr<float>());
  }
  // What is not yet added to the input, the same in every run.
  Tensor addend() { return fixed("addend"); }
  Tensor direction() { return fixed("dy"); }
  Tensor fixed(const std::string& name) {
    const Tensor all = slot_.alloc({T, C}, DType::kF32, MemClass::kActivations);
    Values values;
    fill(all, ValueSource::drawn(values, name, T * C, 1.0));
    return own(all);
  }
  double head_objective() {
    return reinterpret_cast<const StepState*>(state_.data)->loss_sum *
           reinterpret_cast<const StepState*>(state_.data)->inv_tokens;
  }
  // What the first half has left in work is of no use to the second.
  void spoil_work() {
    Frame frame(work_);
    const Tensor junk = frame.alloc({1 << 14}, DType::kF32);
    std::fill_n(junk.ptr<float>(), junk.count(), std::numeric_limits<float>::quiet_NaN());
  }
  void make_micro() {
    const auto ints = [this](std::int64_t modulus, std::int64_t masked) {
      const Tensor tensor = params_.alloc({T}, DType::kI32, MemClass::kActivations);
      for (std::int64_t i = 0; i < T; ++i) {
        tensor.ptr<std::int32_t>()[i] =
            static_cast<std::int32_t>(i == masked ? -1 : 7 * i % modulus);
      }
      return tensor;
    };
    micro_ = {.B = B,
              .S = S,
              .tokens = ints(V, -1),
              .labels = ints(V, 2),
              .positions = {},
              .sample_ids = params_.alloc({B}, DType::kI64, MemClass::kActivations)};
    micro_.positions = params_.alloc({T}, DType::kI32, MemClass::kActivations);
    for (std::int64_t i = 0; i < T; ++i) {
      micro_.positions.ptr<std::int32_t>()[i] = static_cast<std::int32_t>(i % S);
    }
    for (std::int64_t b = 0; b < B; ++b) {
      micro_.sample_ids.ptr<std::int64_t>()[b] = 40 + b;
    }
  }
  void make_constants() {
    if (subject_.config.position == Position::kRotary) {
      constants_.inv_freq = params_.alloc({D / 2}, DType::kF32, MemClass::kParameters);
      fill(constants_.inv_freq, {0.7F});
    } else if (subject_.config.position == Position::kAlibi) {
      const std::int64_t here = H / way_.tp;
      constants_.slopes = params_.alloc({here}, DType::kF32, MemClass::kParameters);
      for (std::int64_t h = 0; h < here; ++h) {
        constants_.slopes.ptr<float>()[h] =
            0.5F / static_cast<float>(1 + h + here * mesh_.tp().rank());
      }
    }
  }
  void gather(const Tensor& dx, Values& grads) {
    if (dx.present() && (rows_ == Rows::kSplit || mesh_.tp().rank() == 0)) {
      std::vector<float>& whole = grads["x"];
      whole.resize(static_cast<std::size_t>(T * C));
      const std::int64_t first = rows_ == Rows::kSplit ? mesh_.tp().rank() * dx.count() : 0;
      std::copy_n(dx.ptr<float>(), dx.count(), whole.begin() + first);
    }
    for (const ParamStore::Owned& owned : store_.owned()) {
      std::vector<float>& whole = grads[owned.piece.name];
      whole.resize(static_cast<std::size_t>(owned.piece.global.count()));
      for (const Run& run : runs_of(owned.piece)) {
        std::copy_n(owned.grad.ptr<float>() + run.local, run.count, whole.begin() + run.global);
      }
    }
  }

  static constexpr std::int64_t kBytes = std::int64_t{1} << 20;
  const Subject& subject_;
  Way way_;
  Ledger ledger_;
  InFlight in_flight_;
  std::unique_ptr<Device> device_ = make_host_device();
  Arena params_{*device_, in_flight_, "params", kBytes};
  Arena work_{*device_, in_flight_, "work", kBytes};
  Arena slot_{*device_, in_flight_, "slot", kBytes};
  Arena late_{*device_, in_flight_, "late", kBytes};
  Arena again_{*device_, in_flight_, "again", kBytes};
  std::unique_ptr<Communicator> world_;
  Mesh mesh_;
  std::unique_ptr<Ops> ops_;
  Rows rows_;
  std::unique_ptr<Layer> layer_;
  ParamStore store_;
  Stash stash_{slot_, 1};
  Stash again_stash_{again_, 1};
  Constants constants_;
  Tensor state_;
  MicroBatch micro_;
  Flow in_;
  Tensor out_;
};

}  // namespace orthant::test
