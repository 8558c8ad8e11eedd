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

// Two stages of tp 1: each rank has the world, the model and the ends, and of both kinds of
// messages two lines.
TEST(Fit, LibrariesAreNeededBesideArenas) {
  const Planned run(2);
  const LibraryMemory memory = {.libraries_mib = 500,
                                .context_mib = 400,
                                .peer_mib = 10,
                                .nccl_mib = 700,
                                .nccl_group_mib = 300,
                                .nccl_small_mib = 100,
                                .nccl_peer_mib = 200};
  const auto mib_by = [&](GpuLinks links, bool has_context) {
    const Libraries libraries = {
        .memory = memory, .links = links, .ranks_per_host = 2, .has_context = has_context};
    const std::int64_t most = std::int64_t{1} << 40;
    const Fit fit = check_fit(
        run.job, run.plan, {.devices = {most, most}, .ranks_per_host = 2, .libraries = libraries});
    EXPECT_EQ(fit.needed - fit.libraries, std::max(run.bytes(0), run.bytes(1)));
    EXPECT_EQ(fullest_bytes(run.job, run.plan, libraries), fit.needed);
    return fit.libraries >> 20;
  };
  EXPECT_EQ(mib_by(GpuLinks::kNone, false), 500);
  EXPECT_EQ(mib_by(GpuLinks::kNone, true), 100);
  EXPECT_EQ(mib_by(GpuLinks::kPeers, false), 500 + 10);
  EXPECT_EQ(mib_by(GpuLinks::kNccl, false), 500 + 700 + 300 + 2 * 100 + 4 * 100);
  EXPECT_EQ(mib_by(GpuLinks::kNccl, true), 100 + 700 + 300 + 2 * 100 + 4 * 100);
}

TEST(Fit, LibrariesAreNamedWhereTheyFillTheMemory) {
  const Planned run(2);
  const std::int64_t arenas = std::max(run.bytes(0), run.bytes(1));
  const std::int64_t modules = std::int64_t{900} << 20;
  const auto limit = [&](std::int64_t bytes) {
    return MemoryLimit{
        .devices = {bytes},
        .ranks_per_host = 1,
        .libraries = {.memory = {.libraries_mib = 1000, .context_mib = 100}, .has_context = true}};
  };
  EXPECT_TRUE(check_fit(run.job, run.plan, limit(arenas + modules)).fits);
  EXPECT_FALSE(check_fit(run.job, run.plan, limit(arenas + modules - 1)).fits);
  const std::string text = explain_misfit(run.job, run.plan, limit(modules));
  EXPECT_NE(text.find("(libraries 900.0 MiB, "), std::string::npos) << text;
}

// Those that share a device are threads of one process.
TEST(Fit, ThreadsThatShareADeviceTakeLibrariesOnce) {
  const Planned run(4);
  const Fit fit = check_fit(run.job, run.plan,
                            {.devices = {std::int64_t{1} << 40},
                             .ranks_per_host = 4,
                             .libraries = {.memory = {.libraries_mib = 500}}});
  EXPECT_EQ(fit.libraries, std::int64_t{500} << 20);
  EXPECT_EQ(fit.needed, fit.libraries + run.bytes(0) + run.bytes(1) + run.bytes(2) + run.bytes(3));
}

TEST(Fit, DirectSumsTakeMemoryWithNccl) {
  Job job = Planned(1).job;
  job.config.layout.ranks = 4;
  job.config.layout.pp = 1;
  const Libraries libraries = {
      .memory = {.nccl_peer_mib = 80}, .links = GpuLinks::kNccl, .ranks_per_host = 4};
  const auto mib = [&] {
    return library_bytes(libraries, rank_config(job), 0) >> 20;
  };
  job.config.device.kind = "cuda";
  EXPECT_EQ(mib(), 0);
  job.config.precision.grad_accum = "bf16";
  EXPECT_EQ(mib(), 3 * 80);
  job.config.precision.grad_accum = "fp32";
  job.config.train.deterministic = true;  // sums of losses over the world go so too
  EXPECT_EQ(mib(), 3 * 80 + 3 * 10);
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
