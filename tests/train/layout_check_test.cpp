// The check of a layout: what trains like one rank passes, and a fault that is put into it is found
// and named.
#include "train/layout_check.h"

#include <filesystem>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"
#include "tests/support/faulty_ranks.h"
#include "train/compare_trials.h"
#include "train/run_ranks.h"
#include "train/small_run.h"

namespace orthant::test {
namespace {

namespace fs = std::filesystem;
using Options = std::vector<std::string>;

constexpr const char* kRun = R"([model]
layers = 6
hidden = 64
heads = 8
vocab = 300
max_positions = 64

[train]
steps = 2
global_batch = 24
seq_length = 32
)";

class LayoutCheck : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    // In memory where that can be: each check saves four checkpoints and waits for the disk.
    const std::string memory = "/dev/shm/";
    const std::string place = fs::exists(memory) ? memory : testing::TempDir();
    folder_ = fmt::format("{}orthant-{}-{}", place, info->name(), ::getpid());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  RunConfig config_of(const std::string& family, Options options) const {
    options.push_back("--model.family=" + family);
    options.push_back("--checkpoint.dir=" + folder_ + "/ckpt");
    options.push_back("--log.dir=" + folder_);
    return parse_run_config(kRun, "run.toml", options);
  }
  std::string check(const RunConfig& config, const RankRunner& runner) const {
    return check_layout(config, nullptr, runner);
  }
  void expect_passes(const std::string& family, const Options& options) const {
    SCOPED_TRACE(fmt::format("{} {}", family, fmt::join(options, " ")));
    try {
      const std::string found = check(config_of(family, options), plain_ranks());
      EXPECT_NE(found.find("goes on with the same bits"), std::string::npos) << found;
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
    expect_no_files();
  }
  // A failure of the run with each of `parts` in it.
  void expect_found(const RunConfig& config, const RankRunner& runner, const Options& parts) const {
    try {
      ADD_FAILURE() << "nothing was found: " << check(config, runner);
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::kRun);
      for (const std::string& part : parts) {
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
            << "no '" << part << "' in: " << error.what();
      }
    }
    expect_no_files();
  }
  void expect_no_files() const { EXPECT_FALSE(fs::exists(folder_ + "/ckpt/self-check.partial")); }

  static RankRunner plain_ranks() {
    return [](const RankConfig& config, const RunPlan& plan, const RankWork& work) {
      run_ranks(config, plan, "cpu", nullptr, work);
    };
  }

  std::string folder_;
};

const std::vector<const char*> kFamilies = {"gpt", "bloom", "llama"};

TEST_F(LayoutCheck, PassesOnOneRank) {
  for (const char* family : kFamilies) {
    expect_passes(family, {});
    expect_passes(family, {"--layout.recompute=block", "--precision.compute=bf16"});
    expect_passes(family, {"--layout.offload=stash", "--layout.offload_fraction=0.5"});
  }
}

TEST_F(LayoutCheck, PassesWithTensorParallelism) {
  for (const char* family : kFamilies) {
    expect_passes(family, {"--layout.ranks=2", "--layout.tp=2"});
    expect_passes(family, {"--layout.ranks=4", "--layout.tp=4", "--layout.sequence_parallel=true",
                           "--layout.recompute=cheap"});
    expect_passes(family, {"--layout.ranks=2", "--layout.tp=2", "--layout.recompute=block",
                           "--layout.split_saved_inputs=true", "--layout.micro_batch=2"});
  }
  expect_passes("llama", {"--layout.ranks=4", "--layout.tp=4", "--model.kv_heads=2"});
  expect_passes("llama", {"--layout.ranks=4", "--layout.tp=4", "--layout.sequence_parallel=true",
                          "--layout.micro_batch=2", "--layout.tp_overlap=halves"});
  expect_passes("llama", {"--layout.ranks=8", "--layout.tp=4", "--model.kv_heads=1",
                          "--layout.sequence_parallel=true", "--layout.zero_stage=3"});
  expect_passes("gpt", {"--layout.ranks=8", "--layout.tp=8", "--model.dropout=0.1"});
}

TEST_F(LayoutCheck, PassesWithEverySchedule) {
  const std::vector<Options> schedules = {
      {"--layout.schedule=gpipe"},
      {"--layout.schedule=1f1b"},
      {"--layout.schedule=interleaved", "--layout.virtual_stages=3"},
      {"--layout.schedule=zero_bubble"},
      {"--layout.schedule=zero_bubble_v"},
  };
  for (const char* family : kFamilies) {
    for (Options options : schedules) {
      options.insert(options.end(), {"--layout.ranks=8", "--layout.pp=2", "--layout.tp=2",
                                     "--layout.micro_batch=2", "--layout.recompute=attention"});
      expect_passes(family, options);
    }
  }
  for (Options options : schedules) {
    options.insert(options.end(), {"--layout.ranks=2", "--layout.pp=2"});
    expect_passes("bloom", options);
  }
  expect_passes("gpt", {"--layout.ranks=3", "--layout.pp=3", "--layout.stages=[1, 2, 3]"});
  expect_passes("gpt", {"--layout.ranks=3", "--layout.pp=3", "--layout.stages=[0, 6, 0]"});
  expect_passes("llama", {"--layout.ranks=4", "--layout.pp=4", "--layout.stages=balanced",
                          "--layout.schedule=zero_bubble", "--layout.recompute=block",
                          "--layout.recompute_blocks=1"});
}

// The file has a list for the run's own number of micro-batches.
TEST_F(LayoutCheck, PassesWithAScheduleFileAndOtherOrdersOfData) {
  const std::string path = folder_ + "/schedule.txt";
  write_file_atomically(path,
                        "placement straight\n"
                        "rank 0: F0 F1 F2 F3 B0 B1 B2 B3\n"
                        "rank 1: F0 B0 F1 B1 F2 B2 F3 B3\n");
  expect_passes("gpt", {"--layout.ranks=2", "--layout.pp=2", "--train.global_batch=4",
                        "--layout.schedule=file", "--layout.schedule_file=" + path});
  for (const char* order : {"sequential", "megatron"}) {
    expect_passes(
        "llama", {"--layout.ranks=2", "--layout.tp=2", fmt::format("--data.order={}", order),
                  "--optimizer.decay=wsd", "--optimizer.decay_steps=1", "--optimizer.clip_grad=0"});
  }
}

TEST_F(LayoutCheck, PassesWithEveryStageOfZero) {
  for (const char* family : kFamilies) {
    for (const char* stage : {"0", "1", "2", "3"}) {
      const std::string zero = fmt::format("--layout.zero_stage={}", stage);
      expect_passes(family, {"--layout.ranks=8", "--layout.tp=2", "--layout.pp=2", zero,
                             "--layout.sequence_parallel=true", "--layout.offload=optimizer",
                             "--layout.offload_fraction=0.7"});
    }
    expect_passes(family, {"--layout.ranks=2", "--layout.zero_stage=3", "--layout.zero_gather=step",
                           "--optimizer.moments=bf16"});
  }
  expect_passes("gpt", {"--layout.ranks=4", "--layout.zero_stage=0"});
  expect_passes("gpt", {"--layout.ranks=4", "--layout.zero_stage=3"});
}

TEST_F(LayoutCheck, PassesInEveryType) {
  for (const char* family : kFamilies) {
    expect_passes(family, {"--layout.ranks=4", "--layout.pp=2", "--layout.offload=optimizer",
                           "--precision.compute=bf16", "--precision.master=split"});
    for (const char* type : {"bf16", "fp16"}) {
      const std::string compute = fmt::format("--precision.compute={}", type);
      expect_passes(family, {"--layout.ranks=2", "--layout.pp=2", compute});
      expect_passes(family, {"--layout.ranks=8", "--layout.tp=2", "--layout.pp=2", compute,
                             "--layout.sequence_parallel=true", "--layout.zero_stage=2"});
      expect_passes(family, {"--layout.ranks=4", "--layout.tp=4", compute,
                             "--precision.grad_accum=bf16", "--optimizer.moments=bf16"});
      expect_passes(family, {"--layout.ranks=8", "--layout.tp=8", compute, "--model.hidden=128",
                             "--layout.sequence_parallel=true"});
      expect_passes(family, {"--layout.ranks=8", "--layout.zero_stage=2", compute,
                             "--precision.grad_accum=bf16"});
    }
  }
}

// Each trains all the same: nothing but a comparison tells.
TEST_F(LayoutCheck, FindsASumOverTpThatIsMissing) {
  const CallFault fault = [](const std::string& group, int, const Call& call) {
    const bool is_of_gradients = group == "tp" && call.where.text() == "update";
    return is_of_gradients ? Wrong::kLeftOut : Wrong::kNothing;
  };
  for (const char* family : kFamilies) {
    for (const char* type : {"fp32", "bf16", "fp16"}) {
      const RunConfig config =
          config_of(family, {"--layout.ranks=4", "--layout.tp=2", "--layout.sequence_parallel=true",
                             fmt::format("--precision.compute={}", type)});
      expect_found(config, ranks_with(fault), {"In step 1", "norm.", "a sum over tp was missing"});
    }
  }
}

TEST_F(LayoutCheck, FindsATiedGradientThatIsDoubled) {
  const CallFault fault = [](const std::string& group, int, const Call& call) {
    const bool is_of_table = group == "ends" && call.kind == Call::Kind::kAllReduce;
    return is_of_table ? Wrong::kTwice : Wrong::kNothing;
  };
  for (const char* type : {"fp32", "bf16", "fp16"}) {
    const RunConfig config =
        config_of("gpt", {"--layout.ranks=4", "--layout.pp=2", "--layout.zero_stage=2",
                          fmt::format("--precision.compute={}", type)});
    expect_found(config, ranks_with(fault),
                 {"step 1", "gradient of embed.tokens.weight", "0 of", "it was counted twice"});
  }
}

// The loss is right: only the gradients of earlier stages lack a micro-batch.
TEST_F(LayoutCheck, FindsAMicroBatchThatIsDropped) {
  const CallFault fault = [](const std::string& group, int rank, const Call& call) {
    constexpr std::int64_t kMicros = 0xffffffff;
    const bool is_dropped = group == "pp_grads" && call.kind == Call::Kind::kRecv && rank == 0 &&
                            (call.identity & kMicros) == 1;
    return is_dropped ? Wrong::kGetsZero : Wrong::kNothing;
  };
  for (const char* schedule : {"1f1b", "zero_bubble_v"}) {
    for (const char* type : {"fp32", "bf16"}) {
      const RunConfig config =
          config_of("llama", {"--layout.ranks=4", "--layout.pp=2", "--layout.micro_batch=2",
                              fmt::format("--layout.schedule={}", schedule),
                              fmt::format("--precision.compute={}", type)});
      expect_found(config, ranks_with(fault),
                   {"step 1", "gradient of h.", "micro-batch 1 of dp rank 0 was left out"});
    }
  }
}

TEST_F(LayoutCheck, FindsTheGradientsOfADpRankThatAreLost) {
  const CallFault fault = [](const std::string& group, int rank, const Call& call) {
    const bool is_lost = group == "dp" && call.kind == Call::Kind::kReduceScatter && rank == 1;
    return is_lost ? Wrong::kGivesZero : Wrong::kNothing;
  };
  expect_found(config_of("bloom", {"--layout.ranks=3"}), ranks_with(fault),
               {"step 1", "the part of dp rank 1 was left out"});
}

TEST_F(LayoutCheck, FindsWeightsThatAreNotPublished) {
  const CallFault fault = [](const std::string& group, int, const Call& call) {
    const bool is_lost = group == "dp" && call.kind == Call::Kind::kAllGather;
    return is_lost ? Wrong::kLeftOut : Wrong::kNothing;
  };
  for (const char* type : {"fp32", "bf16", "fp16"}) {
    const std::string compute = fmt::format("--precision.compute={}", type);
    expect_found(config_of("gpt", {"--layout.ranks=2", compute}), ranks_with(fault),
                 {"after its updates", "rank 1 has other bits of", "than rank 0"});
  }
}

// All ranks have the same wrong weights: half of an update is lost.
TEST_F(LayoutCheck, FindsAnUpdateThatIsLost) {
  const CallFault fault = [](const std::string& group, int rank, const Call& call) {
    const bool is_lost = group == "dp" && call.kind == Call::Kind::kAllGather && rank == 1;
    return is_lost ? Wrong::kGivesZero : Wrong::kNothing;
  };
  for (const char* type : {"fp32", "bf16", "fp16"}) {
    const std::string compute = fmt::format("--precision.compute={}", type);
    expect_found(config_of("gpt", {"--layout.ranks=2", compute}), ranks_with(fault),
                 {"step 2", "new weights have not come everywhere"});
  }
}

TEST_F(LayoutCheck, FindsANormThatIsCountedTwice) {
  const CallFault fault = [](const std::string&, int, const Call& call) {
    const bool is_norm = call.out.dtype == DType::kI64 && call.where.text() == "update";
    return is_norm ? Wrong::kTwice : Wrong::kNothing;
  };
  expect_found(config_of("gpt", {"--layout.ranks=2"}), ranks_with(fault),
               {"step 1", "the gradient norm is", "counted more than once"});
}

// The second training is the one from the checkpoint.
TEST_F(LayoutCheck, FindsACheckpointThatDoesNotGoOn) {
  int runs = 0;
  const CallFault fault = [&runs](const std::string& group, int rank, const Call& call) {
    const bool is_lost =
        runs == 2 && group == "dp" && rank == 1 && call.kind == Call::Kind::kReduceScatter;
    return is_lost ? Wrong::kGivesZero : Wrong::kNothing;
  };
  const RankRunner runner = [&](const RankConfig& config, const RunPlan& plan,
                                const RankWork& work) {
    ++runs;
    ranks_with(fault)(config, plan, work);
  };
  expect_found(config_of("gpt", {"--layout.ranks=2"}), runner,
               {"a checkpoint of this layout does not go on", "step 1", "without a stop"});
}

TEST_F(LayoutCheck, PassesOnRanksWithoutAFault) {
  const RunConfig config =
      config_of("gpt", {"--layout.ranks=8", "--layout.tp=2", "--layout.pp=2",
                        "--layout.sequence_parallel=true", "--layout.zero_stage=3"});
  EXPECT_NO_THROW(check(config, ranks_with(nothing_wrong)));
}

TEST_F(LayoutCheck, ThrowsWhatARankThrowsAndLeavesNothing) {
  const RankRunner runner = [](const RankConfig&, const RunPlan&, const RankWork&) {
    fail_run("a rank is lost");
  };
  expect_found(config_of("gpt", {}), runner, {"a rank is lost"});
}

// The small run has what the run has, made small.
TEST_F(LayoutCheck, TriesTheOptionsOfTheRun) {
  const RunConfig run = config_of(
      "llama", {"--layout.ranks=16", "--layout.tp=4", "--layout.pp=2", "--layout.micro_batch=3",
                "--layout.schedule=interleaved", "--layout.virtual_stages=3", "--model.heads=16",
                "--model.kv_heads=2", "--model.head_dim=16", "--layout.zero_stage=3",
                "--layout.sequence_parallel=true", "--precision.compute=fp16",
                "--train.global_batch=600", "--model.rope_scaling=llama3"});
  const RunConfig small = small_run(run, folder_);
  EXPECT_EQ(small.layout.zero_stage, 3);
  EXPECT_EQ(small.layout.schedule, "interleaved");
  EXPECT_TRUE(small.layout.sequence_parallel);
  EXPECT_EQ(small.precision.compute, "fp16");
  EXPECT_EQ(small.model.kv_heads, 2);
  EXPECT_EQ(small.model.heads, 8);
  EXPECT_NE(small.model.heads * small.model.head_dim, small.model.hidden);
  EXPECT_EQ(small.model.rope_scaling, "llama3");
  EXPECT_EQ(small.model.layers, 6);
  EXPECT_EQ(small.train.global_batch, 5 * 2 * 2);
  EXPECT_LT(count_parameters(small.model), 1'000'000);
  const RunConfig plain = on_one_rank(small, small.train.global_batch);
  EXPECT_EQ(plain.layout.ranks, 1);
  EXPECT_EQ(plain.layout.micro_batch, plain.train.global_batch);
  EXPECT_EQ(plain.layout.zero_stage, LayoutConfig{}.zero_stage);
  EXPECT_EQ(plain.train.global_batch, small.train.global_batch);
  EXPECT_EQ(plain.model, small.model);
}

// Also of the largest.
TEST_F(LayoutCheck, MakesEveryRunSmall) {
  for (const auto& file :
       fs::directory_iterator(std::string(ORTHANT_SOURCE_DIR) + "/configs/runs")) {
    SCOPED_TRACE(file.path().string());
    const RunConfig run = load_run_config(file.path().string(), {});
    const RunConfig small = small_run(run, folder_);
    EXPECT_LT(count_parameters(small.model), 20'000'000);
    EXPECT_EQ(small.layout.ranks, run.layout.ranks);
    EXPECT_EQ(small.layout.tp, run.layout.tp);
    EXPECT_EQ(small.model.tie_embeddings, run.model.tie_embeddings);
    (void)on_one_rank(small, small.layout.micro_batch);
  }
}

// A whole run in one rank's order of work, but for one bit of one message.
TEST_F(LayoutCheck, FindsABitWhereOnlyTheOrderOfWorkDiffers) {
  const CallFault fault = [](const std::string& group, int, const Call& call) {
    const bool is_late = group == "pp_grads" && call.kind == Call::Kind::kRecv;
    return is_late ? Wrong::kGetsALittle : Wrong::kNothing;
  };
  expect_found(config_of("gpt", {"--layout.ranks=2", "--layout.pp=2"}), ranks_with(fault),
               {"step 1", "0 is allowed", "in another order, or rounded otherwise"});
}

TEST_F(LayoutCheck, AllowsMoreWhereNumbersAreRougher) {
  const auto allowed = [this](const Options& options) {
    return layout_tolerance(config_of("gpt", options)).first.gradient;
  };
  EXPECT_GT(allowed({"--precision.compute=bf16"}), allowed({"--precision.compute=fp16"}));
  EXPECT_GT(allowed({"--precision.compute=fp16"}), allowed({}));
  EXPECT_TRUE(keeps_bits(config_of("gpt", {"--layout.ranks=4", "--layout.pp=4"})));
  EXPECT_FALSE(keeps_bits(config_of("gpt", {"--layout.ranks=2"})));
  EXPECT_FALSE(keeps_bits(config_of("gpt", {"--layout.ranks=2", "--layout.tp=2"})));
}

}  // namespace
}  // namespace orthant::test
