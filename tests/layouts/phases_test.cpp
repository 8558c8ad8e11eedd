// Every phase of a run fills each arena to its plan: load, train, evaluate and save.
#include <filesystem>

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/fixture.h"
#include "train/plan_memory.h"
#include "train/run_ranks.h"
#include "train/saver.h"
#include "train/weights.h"

namespace orthant::test {
namespace {

RunConfig run_of(const std::string& preset_name, int tp, int pp, const std::string& dir) {
  RunConfig config;
  config.model = preset(preset_name);
  config.layout.ranks = 8;
  config.layout.tp = tp;
  config.layout.pp = pp;
  config.layout.micro_batch = 2;
  config.train.global_batch = 16;
  config.train.seq_length = 32;
  config.train.eval_interval = 1;
  config.train.eval_steps = 2;
  config.data.valid = {"none"};
  config.checkpoint.dir = dir;
  validate(config);
  return config;
}

std::string compare(Rank& rank, const DryMemory& plan, Phase phase) {
  const ClassBytes classes = rank.memory().by_class();
  rank.begin_phase();
  return classes == plan.phases[static_cast<std::size_t>(phase)]
             ? ""
             : fmt::format("{} of rank {} is not its plan", name_of(phase), rank.mesh().rank());
}

TEST(Phases, FillEveryArenaToItsPlan) {
  const std::string dir = testing::TempDir() + fmt::format("orthant-phases-{}", ::getpid());
  for (const auto& [name, tp, pp] :
       {std::tuple{"tiny-gpt", 2, 2}, {"tiny-llama", 4, 1}, {"tiny-bloom", 1, 4}}) {
    const RunConfig config = run_of(name, tp, pp, dir);
    const RankConfig of_rank = rank_config(config);
    const RunPlan plan = plan_run(of_rank, eval_micros(config));
    const Weights weights = find_weights(config);
    std::vector<std::int32_t> stream(4096);
    for (std::size_t i = 0; i < stream.size(); ++i) {
      stream[i] = static_cast<std::int32_t>(i * 7919 % 250);
    }
    std::vector<std::string> faults(8);
    run_ranks(of_rank, plan, "cpu", nullptr, [&](Rank& rank, int r) {
      const DryMemory& planned = plan.of(r);
      std::string& fault = faults[static_cast<std::size_t>(r)];
      rank.store().load(*weights.source);
      fault += compare(rank, planned, Phase::kLoad);
      const int dp_rank = rank.mesh().coord(Axis::kDp);
      const StepData data(stream, config.layout, dp_rank, 0, 16, 32);
      rank.step(1, 0.001, data.micros, of_rank.max_micros);
      fault += compare(rank, planned, Phase::kTrain);
      const StepData eval(stream, config.layout, dp_rank, 0, 32, 32);
      rank.evaluate(eval.micros, eval_micros(config));
      fault += compare(rank, planned, Phase::kEvaluate);
      save_checkpoint(rank, config, 1, {});
      fault += compare(rank, planned, Phase::kSave);
    });
    for (const std::string& fault : faults) {
      EXPECT_EQ(fault, "") << name;
    }
    std::filesystem::remove_all(dir);
  }
}

}  // namespace
}  // namespace orthant::test
