// Each device is checked against its own memory, with all ranks that share it.
#include "train/fit.h"

#include <gtest/gtest.h>

#include "model/model_config.h"

namespace orthant {
namespace {

struct Planned {
  Job job;
  RunPlan plan;

  explicit Planned(int ranks) {
    RunConfig& config = job.config;
    config.model = preset("tiny-llama");
    config.layout.ranks = ranks;
    config.layout.pp = ranks;
    config.train.global_batch = 8;
    validate(config);
    plan = plan_run(rank_config(job), eval_micros(job));
  }
  std::int64_t bytes(int rank) const { return plan.of(rank).whole.device_bytes(); }
  Fit check(std::vector<std::int64_t> devices, int ranks_per_host) const {
    return check_fit(job, plan, {.devices = std::move(devices), .ranks_per_host = ranks_per_host});
  }
};

TEST(Fit, MemoryOfAnotherDeviceIsNoHelp) {
  const Planned run(2);
  const std::int64_t first = run.bytes(0);
  const std::int64_t second = run.bytes(1);
  EXPECT_TRUE(run.check({first, second}, 2).fits);
  const Fit fit = run.check({first - 1, second + 1000}, 2);
  EXPECT_FALSE(fit.fits);
  EXPECT_EQ(fit.needed, first);
  EXPECT_EQ(fit.available, first - 1);
  EXPECT_EQ(fit.where, "a rank of stage 0");
  EXPECT_EQ(run.check({first + 1000, second - 1}, 2).where, "a rank of stage 1");
}

TEST(Fit, RanksThatShareADeviceNeedItTogether) {
  const Planned run(4);
  const std::int64_t even = run.bytes(0) + run.bytes(2);
  const std::int64_t odd = run.bytes(1) + run.bytes(3);
  EXPECT_TRUE(run.check({even, odd}, 4).fits);
  const Fit fit = run.check({even, odd - 1}, 4);
  EXPECT_FALSE(fit.fits);
  EXPECT_EQ(fit.needed, odd);
  EXPECT_EQ(fit.where, "the 2 ranks that share device 1");
  // A host of two ranks gives each a device of its own.
  const std::int64_t most = std::max(run.bytes(0), run.bytes(3));
  EXPECT_TRUE(run.check({most, most}, 2).fits);
}

// Where values are in bf16 they save two bytes a parameter; fp32 has no value apart.
TEST(Fit, SplitMastersAreOfferedWhereTheyHelp) {
  for (const auto& [compute, helps] : {std::pair("bf16", true), {"fp32", false}, {"fp16", false}}) {
    Job job = Planned(1).job;
    job.config.precision.compute = compute;
    const RunPlan plan = plan_run(rank_config(job), eval_micros(job));
    const std::int64_t needed = plan.of(0).whole.device_bytes();
    const std::vector<Remedy> remedies =
        find_remedies(job, plan, {.devices = {needed - 1}, .ranks_per_host = 1});
    const std::vector<std::string> options = {"precision.master=split"};
    const auto found = std::find_if(remedies.begin(), remedies.end(), [&](const Remedy& remedy) {
      return remedy.options == options;
    });
    ASSERT_EQ(found != remedies.end(), helps) << compute;
    if (!helps) continue;
    EXPECT_TRUE(found->fits);
    EXPECT_NEAR(static_cast<double>(found->saved),
                2 * static_cast<double>(count_parameters(job.config.model)), 1e4);
  }
}

TEST(Fit, EverySourceOfAnEvaluationHasItsSamplesOnTheHost) {
  Job job = Planned(1).job;
  job.config.train.eval_interval = 1;
  const auto bytes = [&job](std::vector<std::string> valid) {
    job.config.data.valid = std::move(valid);
    return feed_bytes(job);
  };
  const std::int64_t none = bytes({});
  const std::int64_t one = bytes({"a"}) - none;
  EXPECT_GT(one, 0);
  EXPECT_EQ(bytes({"a", "b", "c"}) - none, 3 * one);
  // An evaluation alone has those of one source at a time.
  job.purpose = Purpose::kInfer;
  EXPECT_EQ(bytes({"a", "b"}), bytes({"a"}));
}

}  // namespace
}  // namespace orthant
