// Rank: one rank of a run. The same object trains for real and runs dry on the meta backend; only
// the three parts of its Backend differ.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "mem/memory_plan.h"
#include "model/stage.h"
#include "optim/adamw.h"
#include "pipeline/interpreter.h"
#include "pipeline/programs.h"

namespace orthant {

// What shapes the arenas and the program of a rank.
struct RankConfig {
  ModelConfig model;  // complete
  LayoutConfig layout;
  std::int64_t seq_length = 0;
  DType compute = DType::kF32;  // f16: with a dynamic loss scale
  DType master = DType::kF32;   // i16: split, the compute type is bf16
  DType moments = DType::kF32;
  DType grads = DType::kF32;  // in which they are added up
  AdamWConfig optimizer;
  double max_norm = 1;                 // clip_grad; 0: no clipping
  std::uint64_t seed = 1;              // of dropout
  int max_micros = 1;                  // micro-batches of the largest step
  std::vector<int> other_micros = {};  // of the smaller ones (train.batch_ramp)
  Purpose purpose = Purpose::kTrain;
  Target target = Target::kHost;  // where the arithmetic is
  bool by_document = false;       // attention ends where documents do
};

// What meta replaces.
struct Backend {
  Device& device;
  std::string ops;  // "ref", "cpu", "cuda", "meta"
  std::function<std::unique_ptr<Communicator>(const CommParts&)> join_world;
  int num_threads = 1;
  Programs* programs = nullptr;  // shared by the ranks of a process; null: this rank makes its own
  Algorithms* algorithms = nullptr;  // as in OpsParts
};

struct StepResult {
  double loss = 0;           // mean nats per target of the global batch
  std::int64_t targets = 0;  // tokens of it that are predicted within their document
  double grad_norm = 0;
  bool is_finite = true;     // false: nothing was changed
  bool can_go_on = true;     // false: not finite, and no smaller loss scale would help
  double loss_scale = 1;     // of this step
  std::int64_t skipped = 0;  // steps so far whose gradients did not fit, this one included
  bool stops = false;        // some rank has voted to stop: every rank sees it in the same step
  int num_ready = 0;         // ranks that said ready, likewise
  // When the host had queued all of it; a GPU may have been at work for longer.
  std::chrono::steady_clock::time_point queued = {};
};

struct MeanLoss {
  double loss = 0;
  std::int64_t targets = 0;  // as in StepResult
};

class Rank {
 public:
  // `capacities`: of each arena, from a dry run; absent in the dry run itself.
  Rank(const RankConfig& config, const Backend& backend,
       const std::optional<MemoryPlan>& capacities);
  ~Rank();
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  const Mesh& mesh() const { return *mesh_; }
  Device& device() const { return backend_.device; }
  ParamStore& store() { return *store_; }
  const LmHead* head() const;  // null on ranks without the last part of the model

  // Null: none. It must outlive the steps that it observes.
  void observe_ops(OpsObserver* observer) { ops_->observe(observer); }

  // Asks all ranks to stop after the next step.
  void vote_stop() { votes_stop_ = true; }
  // Tells all ranks with the next steps, until it is taken back, that this one is ready.
  void say_ready(bool is_ready) { is_ready_ = is_ready; }
  // Called in every step before weights or optimizer state change.
  void before_updates(std::function<void()> act) { before_updates_ = std::move(act); }

  // One optimizer step, counted from 1. `micros`: this rank's micro-batches; empty in a dry run,
  // which says num_micros alone.
  StepResult step(std::int64_t number, double lr, std::span<const HostMicro> micros,
                  int num_micros);
  // The same up to the gradients: summed over dp in store().owned(), nothing updated.
  StepResult gradients(std::int64_t number, std::span<const HostMicro> micros, int num_micros);
  // Without touching parameters or moments. `observer` sees every micro-batch of the last stage.
  MeanLoss evaluate(std::span<const HostMicro> micros, int num_micros,
                    ModelStage::HeadObserver observer = {});
  // After a step that was not finite: the first layer, in the order of the model, whose output is
  // not, or else the first parameter whose gradient is not. Every rank calls it and gets the same
  // answer.
  std::string find_non_finite(std::span<const HostMicro> micros, int num_micros);

  // Adds up numbers of all ranks, each in its place; every rank gives as many. Between steps.
  void sum_over_ranks(std::span<std::int64_t> numbers);

  // What a step leaves for the next: updates, loss_scale, good_steps, skipped.
  const StepState& kept() const { return state_; }
  void keep(const StepState& state) { state_ = state; }

  MemoryPlan memory() const;  // high-water marks so far, or of this phase
  void begin_phase();         // forgets the marks: a dry run's
  // Adds, at every entry of the ledger, the marks since the entry before it. They start anew.
  void trace_memory(std::vector<ClassBytes>& marks);
  const Ledger& ledger() const { return ledger_; }  // of the last step or evaluation

 private:
  // Ops that run beside the rank's; updates take no workspace.
  struct Beside {
    explicit Beside(Device& device) : work(device, in_flight, "beside", 0) {}
    Ledger ledger;
    InFlight in_flight;
    Arena work;
    std::unique_ptr<Ops> ops;
  };
  struct Uses {
    Slots::List list;
    int num_micros;
    std::vector<int> units;
  };
  Arena& make_arena(const std::string& name, const std::optional<MemoryPlan>& capacities,
                    Arena::Place place = Arena::Place::kDevice);
  CommParts comm_parts(const std::optional<MemoryPlan>& capacities);
  void build_store(std::vector<UnitSpec> units, Arena& params,
                   const std::optional<MemoryPlan>& capacities);
  HostUpdates::Parts host_parts(Arena& arena, Arena& staging);
  std::span<const int> uses_of(const ModelStage::Run& run, const RankActions& actions);
  void build_chunks();
  std::unique_ptr<ModelStage> build_stage(Arena& work, const std::optional<MemoryPlan>& capacities);
  std::vector<Arena*> make_offload(std::size_t num_slots,
                                   const std::optional<MemoryPlan>& capacities);
  // The largest of all steps' lists.
  int most_of(const std::function<int(const RankActions&)>& count);
  void run(const ModelStage::Run& run);
  std::int64_t count_targets(std::span<const HostMicro> micros, int num_micros) const;
  void write_state(std::span<const HostMicro> micros, int num_micros);
  StepResult read_result();
  void forward_backward(std::int64_t number, double lr, std::span<const HostMicro> micros,
                        int num_micros);
  void sum_totals();
  double first_bad_place(const std::string& bad_gradient);

  RankConfig config_;
  Backend backend_;
  Ledger ledger_;
  InFlight in_flight_;
  Transfers transfers_;
  std::vector<std::unique_ptr<Arena>> arenas_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Beside> host_;           // null where no optimizer state is offloaded
  std::unique_ptr<Beside> device_beside_;  // null where the host updates all that is
  std::unique_ptr<Communicator> world_;
  std::unique_ptr<Mesh> mesh_;
  std::optional<Programs> own_programs_;
  Programs& programs_;
  std::vector<std::unique_ptr<Chunk>> chunks_;  // in the order of the model
  std::unique_ptr<ParamStore> store_;
  Constants constants_;
  Tensor state_tensor_;  // StepState
  Tensor norm_sum_;      // i64 [kNormLimbs]
  // f64 [3] over all ranks: loss of the global batch, votes to stop, ranks that are ready
  Tensor totals_;
  Tensor probe_counts_;                    // i64 [layers of this rank]
  std::unique_ptr<StashOffload> offload_;  // null where no stash leaves
  std::unique_ptr<ModelStage> stage_;
  std::unique_ptr<Interpreter> interpreter_;
  std::vector<Uses> uses_;
  StepState state_;               // the host's copy
  std::int64_t num_targets_ = 0;  // of this step or evaluation, over all ranks
  bool votes_stop_ = false;
  bool is_ready_ = false;
  std::function<void()> before_updates_ = [] {
  };
};

}  // namespace orthant
