// The state of a training passes from layout to layout: what one saves, another goes on from with
// the same bits.
#include <array>
#include <map>
#include <mutex>

#include <gtest/gtest.h>

#include "tests/support/small_training.h"

namespace orthant::test {
namespace {

constexpr std::array kStates = {StateKind::kWeight, StateKind::kExpAvg, StateKind::kExpAvgSq};

// Weights and moments, canonical, whole and f32, as a checkpoint has them.
struct State final : ParamSource {
  std::array<std::map<std::string, std::vector<float>>, kStates.size()> tensors;
  StepState kept;
  std::vector<double> losses;

  void read(const ParamSpec& param, StateKind state, std::int64_t first,
            std::span<float> into) const override {
    const std::vector<float>& whole = tensors[static_cast<std::size_t>(state)].at(param.name);
    std::copy_n(whole.begin() + first, into.size(), into.begin());
  }

  void add(Rank& rank) {
    for (const ParamStore::Owned& owned : rank.store().owned()) {
      StateReader reader(rank.device(), owned.piece.count);
      const std::array moments = {owned.m, owned.v};
      for (std::size_t i = 0; i < kStates.size(); ++i) {
        const std::span<const float> here = i == 0 ? reader.weights(owned, 0, owned.piece.count)
                                                   : reader.values(*owned.home, moments[i - 1]);
        std::vector<float>& whole = tensors[i][owned.piece.name];
        whole.resize(static_cast<std::size_t>(owned.piece.global.count()));
        for (const Run& run : runs_of(owned.piece)) {
          std::copy_n(here.begin() + run.local, run.count, whole.begin() + run.global);
        }
      }
    }
  }
};

// Steps first..last; `before`: null for the first of all.
State after_steps(const Training& training, const State* before, int first, int last) {
  const RankConfig& config = training.config;
  const std::vector<std::int32_t> stream = random_stream(config.model.vocab);
  State after;
  std::mutex mutex;
  ThreadWorld world(config.layout.ranks, 60);
  run_rank_threads(world, [&](int r) {
    const auto device = make_host_device();
    const Backend backend{
        .device = *device,
        .ops = "cpu",
        .join_world = [&](const CommParts& parts) { return world.join(r, parts); },
        .num_threads = 1};
    Rank rank(config, backend, dry_run(config, r, 0).memory);
    if (before != nullptr) {
      rank.store().load(*before);
      rank.keep(before->kept);
    } else {
      rank.store().load(InitSource(5));
    }
    for (int step = first; step <= last; ++step) {
      const StepData data(stream, config.layout, rank.mesh().coord(Axis::kDp), step - 1, kBatch,
                          config.seq_length);
      const StepResult result =
          rank.step(step, training.lr_at(step), data.micros, static_cast<int>(data.micros.size()));
      if (r == 0) after.losses.push_back(result.loss);
    }
    rank.store().settle();
    const std::lock_guard lock(mutex);
    after.add(rank);
    if (r == 0) after.kept = rank.kept();
  });
  return after;
}

Training laid_out(const Case& c, int pp, int stage, const char* offload) {
  Training training = training_of(c, 1, pp, 2, 4);  // one micro-batch a step
  training.config.layout.zero_stage = stage;
  training.config.layout.offload = offload;
  training.config.moments = DType::kBF16;
  return training;
}

void expect_goes_on(const Case& c, const Training& from, const Training& to) {
  const State whole = after_steps(laid_out(c, 1, 0, "none"), nullptr, 1, 4);
  const State half = after_steps(from, nullptr, 1, 2);
  const State rest = after_steps(to, &half, 3, 4);
  EXPECT_EQ(rest.tensors, whole.tensors);
  EXPECT_EQ(rest.losses, std::vector<double>(whole.losses.begin() + 2, whole.losses.end()));
}

TEST(State, PassesFromZero3ToStages) {
  const Case c{small("gpt")};
  expect_goes_on(c, laid_out(c, 1, 3, "none"), laid_out(c, 2, 1, "none"));
}
TEST(State, PassesFromTheHostToZero2InBf16) {
  Case c{small("llama")};
  c.compute = DType::kBF16;
  expect_goes_on(c, laid_out(c, 2, 1, "optimizer"), laid_out(c, 1, 2, "none"));
}
TEST(State, PassesFromStagesToTheHostAndZero3InFp16) {
  Case c{small("llama")};
  c.compute = DType::kF16;
  expect_goes_on(c, laid_out(c, 4, 0, "none"), laid_out(c, 1, 3, "optimizer"));
}

}  // namespace
}  // namespace orthant::test
