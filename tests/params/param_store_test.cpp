// Gradients of parameters that several ranks hold: added once, counted once, saved once.
#include "params/param_store.h"

#include <cmath>
#include <map>
#include <memory>
#include <mutex>

#include <gtest/gtest.h>

#include "comm/backends.h"
#include "ops/exact_sum.h"

namespace orthant {
namespace {

constexpr int kTp = 2;
constexpr int kDp = 2;

// One unit of tp rank `part`: a norm that both hold, a split matrix, and behind it, inside a block
// of the norm, one that both hold.
struct Params {
  Param norm = make_param({.name = "norm", .global = {10}, .init = {}}, 0, kTp);
  Param q;
  Param kv;

  explicit Params(int part)
      : q(make_param({.name = "q", .global = {4, 25}, .split_dim = 0, .init = {}}, part, kTp)),
        kv(make_param(
            {.name = "kv", .global = {1, 30}, .split_dim = 0, .repeats = true, .init = {}}, part,
            kTp)) {
    norm.is_partial = true;
    kv.spec.follows = true;
  }
  std::vector<Param*> all() { return {&norm, &q, &kv}; }
};

// What a rank adds to element i of its part; sums of such are exact.
float gradient(const Param& param, int tp, int dp, std::int64_t i) {
  return static_cast<float>(param.spec.name.size()) + static_cast<float>(8 * tp + 4 * dp + i % 3);
}

struct Outcome {
  std::map<std::string, std::vector<float>> grads;  // whole tensors
  std::map<std::string, std::vector<int>> times;    // each element was saved
  double norm = 0;
};

// One step of one micro-batch on every rank.
class Step {
 public:
  Step(ThreadWorld& world, int rank, int zero_stage)
      : device_(make_host_device()),
        world_(world.join(rank, {.ledger = ledger_, .in_flight = in_flight_})),
        mesh_(MeshShape{.sizes = {kTp, 1, 1, kDp, 1}}, *world_),
        params_(mesh_.coord(Axis::kTp)),
        ops_(make_ops("cpu", {.ledger = ledger_, .in_flight = in_flight_, .work = memory_})),
        store_({{.name = "unit", .params = params_.all()}}, {.sharding = zero(zero_stage)},
               {.ops = *ops_,
                .device = *device_,
                .mesh = mesh_,
                .params = memory_,
                .staging = memory_}) {}

  void run(Outcome& outcome, std::mutex& mutex) {
    static constexpr int kUses[] = {0};
    store_.expect_uses(kUses);
    store_.begin_step();
    store_.use(0);
    store_.open_grads(0);
    for (Param* param : params_.all()) {
      for (std::int64_t i = 0; i < param->local.count(); ++i) {
        param->grad.ptr<float>()[i] =
            gradient(*param, mesh_.coord(Axis::kTp), mesh_.coord(Axis::kDp), i);
      }
    }
    store_.close_grads(0, ParamStore::Micro::kLast);
    store_.release(0);
    store_.finish_grads();
    const double norm = global_norm();
    const std::lock_guard lock(mutex);
    outcome.norm = norm;
    for (const ParamStore::Owned& owned : store_.owned()) {
      add(owned, outcome);
    }
  }

 private:
  double global_norm() {
    const Tensor sum = memory_.alloc({kNormLimbs}, DType::kI64, MemClass::kOptimizer);
    for (const Segment& segment : store_.segments()) {
      if (!segment.counted) continue;
      ops_->run(SquaredNorm{.sum = sum, .g = segment.grad, .start = segment.block_start});
    }
    store_.norm_group().all_reduce(sum, Reduce::kSum);
    return std::sqrt(exact_value(ConstNormLimbs(sum.ptr<const std::int64_t>(), kNormLimbs)));
  }

  static void add(const ParamStore::Owned& owned, Outcome& outcome) {
    const auto count = static_cast<std::size_t>(owned.piece.global.count());
    std::vector<float>& grads = outcome.grads[owned.piece.name];
    std::vector<int>& times = outcome.times[owned.piece.name];
    grads.resize(count);
    times.resize(count);
    for (const Run& run : runs_of(owned.piece)) {
      for (std::int64_t i = 0; i < run.count; ++i) {
        grads[static_cast<std::size_t>(run.global + i)] = owned.grad.ptr<float>()[run.local + i];
        ++times[static_cast<std::size_t>(run.global + i)];
      }
    }
  }

  Ledger ledger_;
  InFlight in_flight_;
  std::unique_ptr<Device> device_;
  Arena memory_{*device_, in_flight_, "memory", 1 << 20};
  std::unique_ptr<Communicator> world_;
  Mesh mesh_;
  Params params_;
  std::unique_ptr<Ops> ops_;
  ParamStore store_;
};

Outcome run_step(int zero_stage) {
  Outcome outcome;
  std::mutex mutex;
  ThreadWorld world(kTp * kDp, 60);
  run_rank_threads(world, [&](int rank) { Step(world, rank, zero_stage).run(outcome, mutex); });
  return outcome;
}

// Summed over dp, and over tp where both hold it.
std::map<std::string, std::vector<float>> expected_grads() {
  std::map<std::string, std::vector<float>> sums;
  for (int tp = 0; tp < kTp; ++tp) {
    Params params(tp);
    for (const Param* param : params.all()) {
      std::vector<float>& sum = sums[param->spec.name];
      sum.resize(static_cast<std::size_t>(param->spec.global.count()));
      const std::int64_t begin = param->copies > 1 ? 0 : tp * param->local.count();
      for (std::int64_t i = 0; i < param->local.count(); ++i) {
        for (int dp = 0; dp < kDp; ++dp) {
          sum[static_cast<std::size_t>(begin + i)] += gradient(*param, tp, dp, i);
        }
      }
    }
  }
  return sums;
}

TEST(ParamStore, GradientsOfCopiesAreAddedCountedAndSavedOnce) {
  const auto expected = expected_grads();
  double squares = 0;
  for (const auto& [name, sum] : expected) {
    for (const float g : sum) {
      squares += static_cast<double>(g) * g;
    }
  }
  for (const int stage : {0, 1, 2, 3}) {
    SCOPED_TRACE(stage);
    const Outcome outcome = run_step(stage);
    EXPECT_EQ(outcome.grads, expected);
    EXPECT_EQ(outcome.norm, std::sqrt(squares));
    for (const auto& [name, times] : outcome.times) {
      EXPECT_EQ(times, std::vector<int>(times.size(), 1)) << name;
    }
  }
}

}  // namespace
}  // namespace orthant
