// Ops: the table of contents of all arithmetic. run() checks, records, then executes; in the meta
// backend there is nothing behind "executes". A tensor whose type an op does not name holds
// activations or weights: f32, bf16 or f16. The ref backend also takes f64, in every place of f32
// beside it, so that gradients can be compared with finite differences.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/ledger.h"
#include "mem/arena.h"
#include "mem/in_flight.h"
#include "ops/activation.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/loss.h"
#include "ops/norm.h"
#include "ops/position.h"
#include "ops/step_state.h"
#include "ops/update.h"
#include "ops/workspace.h"

namespace orthant {

template <class A>
concept OpArgs = requires(const A& a) {
  A::kName;
  a.reads();
  a.writes();
  check(a);
  cost(a);
  workspace_bytes(a);
};

// Told when an op begins and ends: for measuring.
class OpsObserver {
 public:
  virtual ~OpsObserver() = default;
  virtual void before(std::string_view op, const Cost& cost) = 0;
  virtual void after() = 0;
};

class Ops {
 public:
  Ops(Ledger& ledger, InFlight& in_flight, Arena& work, Target target = Target::kHost)
      : ledger_(ledger),
        in_flight_(in_flight),
        work_(work),
        target_(target) {}
  virtual ~Ops() = default;
  Ops(const Ops&) = delete;
  Ops& operator=(const Ops&) = delete;

  template <OpArgs A>
  void run(const A& args) {
    check(args);
    const auto reads = args.reads();
    const auto writes = args.writes();
    const Cost costs = cost(args);
    record(A::kName, costs, reads, writes);
    Frame frame(work_);
    const bool is_host = target_ == Target::kHost;
    const Tensor workspace = frame.alloc(
        {is_host ? workspace_bytes(args) : cuda_workspace_bytes(args, target_)}, DType::kU8);
    if (observer_ != nullptr) observer_->before(A::kName, costs);
    exec(args, workspace);
    if (observer_ != nullptr) observer_->after();
  }

  // Null: none. It must outlive the ops that it observes.
  void observe(OpsObserver* observer) { observer_ = observer; }

 protected:
  virtual void exec(const LinearFwd& a, const Tensor& workspace) = 0;
  virtual void exec(const LinearBwdInput& a, const Tensor& workspace) = 0;
  virtual void exec(const LinearBwdWeight& a, const Tensor& workspace) = 0;
  virtual void exec(const NormFwd& a, const Tensor& workspace) = 0;
  virtual void exec(const NormBwd& a, const Tensor& workspace) = 0;
  virtual void exec(const AttentionFwd& a, const Tensor& workspace) = 0;
  virtual void exec(const AttentionBwd& a, const Tensor& workspace) = 0;
  virtual void exec(const AttentionCached& a, const Tensor& workspace) = 0;
  virtual void exec(const Rotary& a, const Tensor& workspace) = 0;
  virtual void exec(const GeluFwd& a, const Tensor& workspace) = 0;
  virtual void exec(const GeluBwd& a, const Tensor& workspace) = 0;
  virtual void exec(const SwigluFwd& a, const Tensor& workspace) = 0;
  virtual void exec(const SwigluBwd& a, const Tensor& workspace) = 0;
  virtual void exec(const EmbeddingFwd& a, const Tensor& workspace) = 0;
  virtual void exec(const EmbeddingBwd& a, const Tensor& workspace) = 0;
  virtual void exec(const SoftmaxPart& a, const Tensor& workspace) = 0;
  virtual void exec(const CrossEntropyFwd& a, const Tensor& workspace) = 0;
  virtual void exec(const CrossEntropyBwd& a, const Tensor& workspace) = 0;
  virtual void exec(const Add& a, const Tensor& workspace) = 0;
  virtual void exec(const Accumulate& a, const Tensor& workspace) = 0;
  virtual void exec(const Copy& a, const Tensor& workspace) = 0;
  virtual void exec(const Zero& a, const Tensor& workspace) = 0;
  virtual void exec(const Dropout& a, const Tensor& workspace) = 0;
  virtual void exec(const CountNonFinite& a, const Tensor& workspace) = 0;
  virtual void exec(const SquaredNorm& a, const Tensor& workspace) = 0;
  virtual void exec(const ClipFactor& a, const Tensor& workspace) = 0;
  virtual void exec(const AdamW& a, const Tensor& workspace) = 0;

 private:
  void record(std::string_view what, const Cost& cost, std::span<const Tensor> reads,
              std::span<const Tensor> writes);

  Ledger& ledger_;
  InFlight& in_flight_;
  Arena& work_;
  Target target_;
  OpsObserver* observer_ = nullptr;
};

class Algorithms;

// What an Ops is built on. The references outlive it.
struct OpsParts {
  Ledger& ledger;
  InFlight& in_flight;
  Arena& work;
  int num_threads = 1;            // OpenMP threads of this rank; changes no bit
  Target target = Target::kHost;  // whose workspaces "meta" plans
  void* queue = nullptr;          // of the device: what "cuda" queues its kernels on
  Algorithms* algorithms =
      nullptr;  // of "cuda": what is timed once for all; null: for itself alone
};

// kind: "ref", "cpu", "cuda" or "meta". Throws a user error that names what is built in.
std::unique_ptr<Ops> make_ops(std::string_view kind, const OpsParts& parts);

}  // namespace orthant
