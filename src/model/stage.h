// ModelStage: the chunks of one rank as a pipeline Stage. It moves micro-batches through slots,
// brings units of parameters in and out around each layer, and copies across the chunks' borders.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/turns.h"
#include "model/batch_loader.h"
#include "model/build.h"
#include "model/slots.h"
#include "pipeline/placement.h"
#include "pipeline/schedule.h"
#include "pipeline/stage.h"

namespace orthant {

class ModelStage final : public Stage {
 public:
  struct Parts {
    const Mesh& mesh;
    Ops& ops;
    Ledger& ledger;
    Device& device;
    ParamStore& store;
    const Constants& constants;
    Tensor step_state;
    std::vector<Arena*> works;  // one, or one for each half of a micro-batch
    Arena& messages;
    std::vector<Arena*> agains;  // for blocks whose forward runs again; as many
    std::vector<Arena*> slots;   // one a micro-batch in flight
    std::vector<Arena*> lates;   // one a micro-batch between the halves of its backward
    // Where layers leave for the host; null and empty otherwise.
    StashOffload* offload;
    std::vector<Arena*> hosts;  // one a slot
  };
  // B sequences of S tokens in a micro-batch of a model of width C.
  struct Sizes {
    std::int64_t B;
    std::int64_t S;
    std::int64_t C;
    DType compute;     // of activations
    bool by_document;  // attention ends where documents do
  };
  ModelStage(const std::vector<std::unique_ptr<Chunk>>& chunks, const Placement& placement,
             const Sizes& sizes, const Parts& parts);

  // The units of parameters that these actions use, in order.
  std::vector<int> uses(const RankActions& actions) const;

  // Before each run of the interpreter.
  struct Run {
    Mode mode;
    Slots::List list;
    std::span<const HostMicro> micros;  // stays until the run ends; empty in a dry run
    int num_micros;
  };
  void begin(const Run& run);

  // Called after each forward of the last part, while the stash is there.
  using HeadObserver = std::function<void(int micro, const LmHead::Saved& saved)>;
  void observe_head(HeadObserver observer) { observer_ = std::move(observer); }
  // Counts non-finite outputs layer by layer into counts while set; i64, one for each layer of this
  // rank, chunk by chunk.
  void probe_into(const Tensor& counts) { probe_ = counts; }

  void open(int chunk, int micro) override;
  void close(int chunk, int micro) override { slots_.close(chunk, micro); }
  Tensor act_in(int chunk) override { return part(chunk).act_in; }
  Tensor act_out(int chunk) override { return part(chunk).act_out; }
  Tensor grad_in(int chunk) override { return part(chunk).grad_in; }
  Tensor grad_out(int chunk) override { return part(chunk).grad_out; }
  void forward(int chunk, int micro) override;
  void backward(int chunk, int micro) override { run_backward(chunk, micro, Half::kBoth); }
  void backward_input(int chunk, int micro) override { run_backward(chunk, micro, Half::kInput); }
  void backward_weight(int chunk, int micro) override { run_backward(chunk, micro, Half::kWeight); }

 private:
  struct Part {
    const Chunk& chunk;
    int first_layer;                            // among the layers of this rank
    Tensor act_in, act_out, grad_in, grad_out;  // absent at the model's ends
    bool has_passing = false;  // rows that stay only until the next layer has read them
  };
  enum class Half : std::uint8_t { kInput, kWeight, kBoth };
  // What one body of work has: a micro-batch, or half of one where those take turns.
  struct Share {
    Context ctx;
    Stash& stash;
  };
  // How many shares have begun and ended a layer.
  struct Visits {
    int begun = 0;
    int ended = 0;
  };
  // One action on its way through the layers.
  struct Pass {
    Part& part;
    Slots::Slot& slot;
    std::vector<Share> shares;
    std::vector<Visits> visits = {};     // by layer
    std::array<Tensor, 2> passing = {};  // for what a layer leaves to the next alone
    std::array<Tensor, 2> addends = {};  // of a forward
    Tensor entered = {};                 // the first layer's input
    Half half = Half::kBoth;             // of a backward
    ParamStore::Micro closing = ParamStore::Micro::kMore;
  };
  static bool does_input(Half half) { return half != Half::kWeight; }
  static bool does_weight(Half half, const Layer& layer);

  void add_borders(const Placement& placement);
  Part& part(int chunk) { return chunks_[static_cast<std::size_t>(chunk)]; }
  std::vector<Share> shares_of(Slots::Slot& slot);
  Tensor rows_of(const Tensor& whole, std::size_t share) const;
  static Shape rows_of(const Shape& whole, const Pass& pass);
  bool give_turn();
  void for_shares(const Pass& pass, const std::function<void(std::size_t share)>& act);
  bool comes_first(Pass& pass, std::size_t share, int layer, int before);
  bool goes_last(Pass& pass, int layer);
  Pass begin_pass(int chunk, Slots::Slot& slot, Frame& frame);
  void forward_share(Pass& pass, std::size_t share);
  void open_forward(Pass& pass, int i);
  void close_forward(Pass& pass, int i);
  void begin_action(char kind, int chunk, int micro);
  Tensor enter(const Part& part, Stash& stash);
  Tensor keep_gradient(Stash& stash, const Tensor& dy);
  void fetch_below(Pass& pass, int layer);
  void run_backward(int chunk, int micro, Half half);
  void backward_share(Pass& pass, std::size_t share);
  void open_backward(Pass& pass, int i);
  void close_backward(Pass& pass, int i);
  void probe(const Part& part, int i, Flow& out, Stash& stash);

  Sizes sizes_;
  Shape all_rows_;  // [T,C]
  Shape own_rows_;  // [R,C]  of what passes between layers and stages
  Parts parts_;
  std::vector<Part> chunks_;
  Slots slots_;
  std::vector<Stash> agains_;
  std::optional<Turns> turns_;  // of the halves of a micro-batch
  std::function<void()> give_midway_;
  BatchLoader loader_;
  Run run_{};
  HeadObserver observer_;
  Tensor probe_;
};

}  // namespace orthant
