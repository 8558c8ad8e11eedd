// ModelStage: the layers of one rank as a pipeline Stage. It moves micro-batches through slots,
// brings units of parameters in and out around each layer, and copies across the stage's borders.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "model/build.h"
#include "pipeline/stage.h"

namespace orthant {

// Token ids of one micro-batch on the host: B rows of S+1. Empty spans in a dry run.
struct HostMicro {
  std::span<const std::int32_t> tokens;
  std::span<const std::int64_t> sample_ids;  // [B]
};

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
    Arena& work;
    Arena& messages;
    std::vector<Arena*> slots;  // one a micro-batch in flight
  };
  // B sequences of S tokens in a micro-batch; activations of type `compute`.
  ModelStage(const ModelConfig& config, const Chunk& chunk, std::int64_t B, std::int64_t S,
             DType compute, const Parts& parts);

  // Before each run of the interpreter. `micros` stays until the run ends; empty in a dry run.
  void begin(Mode mode, std::span<const HostMicro> micros, int num_micros);

  // Called after each forward of the last stage, while the stash is there.
  using HeadObserver = std::function<void(int micro, const LmHead::Saved& saved)>;
  void observe_head(HeadObserver observer) { observer_ = std::move(observer); }
  // Counts non-finite outputs layer by layer into counts[layer] while set; i64 [num_layers].
  void probe_into(const Tensor& counts) { probe_ = counts; }

  void open(int chunk, int micro) override;
  void close(int chunk, int micro) override;
  Tensor act_in(int /*chunk*/) override { return act_in_; }
  Tensor act_out(int /*chunk*/) override { return act_out_; }
  Tensor grad_in(int /*chunk*/) override { return grad_in_; }
  Tensor grad_out(int /*chunk*/) override { return grad_out_; }
  void forward(int chunk, int micro) override;
  void backward(int chunk, int micro) override;
  void backward_input(int chunk, int micro) override;
  void backward_weight(int chunk, int micro) override;

 private:
  struct Slot {
    Arena* arena;
    Stash stash;
    MicroBatch batch;
    int micro = -1;  // -1: free
  };
  enum class Half : std::uint8_t { kInput, kWeight, kBoth };
  Slot& slot_of(int micro);
  Context context(const Slot& slot);
  void load_batch(Slot& slot, int micro);
  void put(const Tensor& to, std::span<const std::byte> from);
  void run_backward(int micro, Half half);
  void probe(int layer, Flow& out, Stash& stash);

  std::int64_t hidden_;
  const Chunk& chunk_;
  std::int64_t B_;
  std::int64_t S_;
  DType compute_;
  Parts parts_;
  Tensor act_in_, act_out_, grad_in_, grad_out_;  // absent at the model's ends
  std::vector<Slot> slots_;
  Mode mode_ = Mode::kTrain;
  std::span<const HostMicro> micros_;
  int num_micros_ = 0;
  std::vector<std::int32_t> staging_;  // [T] host
  HeadObserver observer_;
  Tensor probe_;
};

}  // namespace orthant
