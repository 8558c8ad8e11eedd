#include "train/run_config.h"

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/check.h"
#include "base/file.h"

namespace orthant {
namespace {

const std::string kFixtures = ORTHANT_SOURCE_DIR "/../shared/fixtures/";

bool has_fixtures() {
  return std::filesystem::exists(kFixtures);
}

RunConfig parse(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return parse_run_config(text, "run.toml", overrides);
}

std::string parse_error(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    (void)parse(text, overrides);
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kUser);
    return error.what();
  }
  return "no error";
}

constexpr const char* kExample = R"(
[model]
preset = "gpt2-124m"
[layout]
ranks = 8
tp = 2
pp = 2
micro_batch = 2
[train]
steps = 200
global_batch = 16
batch_ramp = [[51, 32], [101, 64]]
seq_length = 256
eval_interval = 50
[optimizer]
lr = 3e-4
min_lr = 3e-5
warmup_steps = 20
[precision]
compute = "bf16"
[data]
train = ["corpus"]
valid = ["corpus-valid"]
[checkpoint]
dir = "ckpt"
interval = 100
)";

TEST(RunConfig, AnEmptyRunFileIsTheDefaults) {
  const RunConfig config = parse("");
  EXPECT_EQ(config.layout.ranks, 1);
  EXPECT_EQ(config.layout.tp, 1);
  EXPECT_EQ(config.layout.pp, 1);
  EXPECT_EQ(config.layout.virtual_stages, 1);
  EXPECT_EQ(config.layout.micro_batch, 1);
  EXPECT_FALSE(config.layout.sequence_parallel);
  EXPECT_EQ(config.layout.zero_stage, 1);
  EXPECT_EQ(config.train.seq_length, 1024);
  EXPECT_EQ(config.model.ffn, 3072);
  EXPECT_EQ(config.compute_type(), DType::kF32);
  EXPECT_THROW(require_data(config), Error);
}

TEST(RunConfig, TheRunFileAndTheCommandLineSetOptions) {
  const RunConfig config = parse(kExample, {"--layout.tp=4", "--train.seed=7"});
  EXPECT_EQ(config.layout.tp, 4);
  EXPECT_EQ(config.layout.dp(), 1);
  EXPECT_EQ(config.train.seed, 7);
  EXPECT_EQ(config.model, preset("gpt2-124m"));
  EXPECT_EQ(config.compute_type(), DType::kBF16);
  EXPECT_EQ(config.lr().steps, 200);
  EXPECT_EQ(config.lr().min_lr, 3e-5);
  require_data(config);
}

TEST(RunConfig, AFileOfAlgorithmsIsNamedUnderDevice) {
  EXPECT_EQ(parse("").device.algorithms, "");
  const RunConfig config = parse("[device]\nkind = \"cuda\"\nalgorithms = \"here.json\"");
  EXPECT_EQ(config.device.algorithms, "here.json");
  EXPECT_NE(to_toml(config).find("\nalgorithms = \"here.json\"\n"), std::string::npos);
}

TEST(RunConfig, WhatIsWrittenReadsBackTheSame) {
  const std::string text = to_toml(parse(kExample));
  EXPECT_EQ(to_toml(parse(text)), text);
  EXPECT_NE(text.find("[model]\npreset = \"gpt2-124m\"\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\nhead_dim = 64\n"), std::string::npos) << text;
}

TEST(RunConfig, BatchesFollowTheRamp) {
  const RunConfig config = parse(kExample);
  EXPECT_EQ(config.global_batch_at(1), 16);
  EXPECT_EQ(config.global_batch_at(50), 16);
  EXPECT_EQ(config.global_batch_at(51), 32);
  EXPECT_EQ(config.global_batch_at(101), 64);
  EXPECT_EQ(config.max_global_batch(), 64);
  std::int64_t samples = 0;
  for (std::int64_t step = 1; step <= 205; ++step) {
    EXPECT_EQ(config.samples_before(step), samples) << step;
    samples += config.global_batch_at(step);
  }
  EXPECT_EQ(parse(kExample, {"--train.steps=90", "--checkpoint.interval=0"}).max_global_batch(),
            32);
}

TEST(RunConfig, ARampFromTheFirstStepReplacesTheBatch) {
  const RunConfig config = parse("[train]\nglobal_batch = 4\nbatch_ramp = [[1, 2]]");
  EXPECT_EQ(config.samples_before(4), 6);
  EXPECT_EQ(config.max_global_batch(), 2);
}

TEST(RunConfig, FieldsChangeAPreset) {
  const RunConfig config =
      parse("[model]\npreset = \"gpt2-124m\"\nhidden = 384\nheads = 6\ndropout = 0.1");
  EXPECT_EQ(config.model.layers, 12);
  EXPECT_EQ(config.model.kv_heads, 6);
  EXPECT_EQ(config.model.head_dim, 64);
  EXPECT_EQ(config.model.ffn, 1536);
  EXPECT_EQ(config.model.dropout, 0.1);
}

TEST(RunConfig, TheFamilySetsTheDefaultsOfTheRest) {
  const RunConfig config = parse("[model]\nlayers = 2\nfamily = \"llama\"");
  EXPECT_EQ(config.model.layers, 2);
  EXPECT_EQ(config.model.position, "rope");
  EXPECT_EQ(config.model.norm, "rmsnorm");
  EXPECT_EQ(config.train.seq_length, 2048);
}

TEST(RunConfig, WeightsImplyTheirConfig) {
  if (!has_fixtures()) GTEST_SKIP() << kFixtures << " is not on this machine";
  const std::string weights = "--model.weights=" + kFixtures + "llama-tiny";
  EXPECT_EQ(parse("", {weights}).model, preset("tiny-llama"));
  EXPECT_EQ(parse("", {weights, "--model.dropout=0.1", "--model.max_positions=128"}).model.dropout,
            0.1);
  EXPECT_EQ(parse("[model]\npreset = \"tiny-llama\"", {weights}).model, preset("tiny-llama"));
  EXPECT_EQ(parse("", {"--model.config=" + kFixtures + "gpt2-tiny/config.json"}).model,
            preset("tiny-gpt"));
  EXPECT_EQ(parse_error("[model]\nlayers = 3", {weights}),
            "model.layers=3 (run.toml line 2) does not fit the weights in " + kFixtures +
                "llama-tiny, which have 4; remove it or use other weights");
  EXPECT_EQ(parse_error("", {weights, "--layout.tp=16", "--layout.ranks=16"}),
            "layout.tp=16 does not divide num_heads=8; use 1, 2, 4 or 8");
}

TEST(RunConfig, AFileIsReadByItsPath) {
  const std::string path = ::testing::TempDir() + "orthant_run.toml";
  write_file_atomically(path, "[train]\nsteps = 3\n");
  EXPECT_EQ(load_run_config(path, {"--train.seed=2"}).train.steps, 3);
  EXPECT_THROW((void)load_run_config(path + ".none", {}), Error);
}

struct Bad {
  std::vector<std::string> overrides;
  std::string message;
};

// Each override spoils a good run file: 16 heads, 4 layers, 64 learned positions.
void expect_messages(const std::vector<Bad>& cases) {
  constexpr const char* kGood = R"(
[model]
layers = 4
hidden = 64
heads = 16
max_positions = 64
)";
  EXPECT_EQ(parse_error(kGood), "no error");
  for (const Bad& c : cases) {
    EXPECT_EQ(parse_error(kGood, c.overrides), c.message);
  }
}

TEST(RunConfig, LayoutsThatDoNotFitAreRefused) {
  expect_messages({
      {{"--layout.tp=3", "--layout.ranks=3"},
       "layout.tp=3 does not divide num_heads=16; use 1, 2, 4, 8 or 16"},
      {{"--layout.tp=6", "--layout.ranks=6", "--model.heads=12", "--model.kv_heads=4",
        "--model.hidden=48"},
       "layout.tp=6 neither divides kv_heads=4 nor is a multiple of it; use 1, 2, 4 or 12"},
      {{"--layout.tp=4", "--layout.ranks=4", "--layout.sequence_parallel=true",
        "--layout.micro_batch=3", "--train.seq_length=34", "--train.global_batch=12"},
       "layout.sequence_parallel splits the 102 rows of a micro-batch, "
       "micro_batch*seq_length=3*34, over tp=4, which does not divide them; use micro_batch 2 or "
       "4"},
      {{"--layout.tp=2", "--layout.ranks=2", "--layout.tp_overlap=halves", "--layout.micro_batch=3",
        "--train.global_batch=12"},
       "layout.tp_overlap=halves halves micro-batches, and layout.micro_batch=3 is odd; use 2 or "
       "4, "
       "or rows"},
      {{"--layout.tp=2", "--layout.ranks=2", "--layout.sequence_parallel=true",
        "--layout.tp_overlap=halves", "--layout.micro_batch=2", "--train.seq_length=33",
        "--train.global_batch=12"},
       "layout.sequence_parallel splits the 66 rows of a micro-batch, "
       "micro_batch*seq_length=2*33, over tp=2 and halves, which does not divide them; use "
       "micro_batch 4"},
      {{"--layout.tp_overlap=half"},
       "layout.tp_overlap='half' is not known; did you mean 'halves'? Known are rows, halves"},
      {{"--layout.tp=8", "--layout.ranks=8", "--model.ffn=100"},
       "layout.tp=8 does not divide ffn=100; use 1, 2 or 4"},
      {{"--layout.ranks=6", "--layout.tp=2", "--layout.pp=2"},
       "layout.ranks=6 is not a multiple of tp*pp=2*2=4; use 4 or 8 ranks"},
      {{"--layout.ranks=2", "--layout.tp=2", "--layout.pp=2"},
       "layout.ranks=2 is not a multiple of tp*pp=2*2=4; use 4 ranks"},
      {{"--layout.pp=8", "--layout.ranks=8"},
       "layout.pp=8 leaves a stage without a block: model.layers=4; use at most 4"},
      {{"--layout.pp=2", "--layout.ranks=2", "--layout.stages=[1, 1, 2]"},
       "layout.stages has 3 layer counts, but there are 2 stages; give one for each"},
      {{"--layout.pp=2", "--layout.ranks=2", "--layout.stages=[1, 2]"},
       "layout.stages adds up to 3 blocks, but model.layers=4; change the counts"},
      {{"--layout.pp=3", "--layout.ranks=3", "--layout.stages=[3, 0, 1]"},
       "layout.stages has a stage of 0 blocks; give each between 1 and model.layers=4"},
      {{"--layout.pp=2", "--layout.ranks=2", "--layout.stages=[5, -1]"},
       "layout.stages has a stage of 5 blocks; give each between 0 and model.layers=4"},
      {{"--layout.schedule=interleaved", "--layout.virtual_stages=2", "--layout.stages=[1, 2, 1]"},
       "layout.stages has 3 layer counts, but there are 2 parts; give one for each"},
      {{"--layout.schedule=interleaved", "--layout.virtual_stages=3", "--layout.pp=2",
        "--layout.ranks=2"},
       "layout.pp=2 stages of 3 parts are more than model.layers=4; lower layout.pp or "
       "layout.virtual_stages"},
      {{"--layout.schedule=zero_bubble_v", "--layout.pp=4", "--layout.ranks=4"},
       "layout.pp=4 stages of 2 parts are more than model.layers=4; lower layout.pp or use another "
       "schedule"},
      {{"--layout.virtual_stages=2"},
       "layout.virtual_stages=2 does not go with layout.schedule='1f1b', whose stages are one part "
       "each; use 1, or layout.schedule='interleaved'"},
      {{"--layout.schedule=zero_bubble_v", "--layout.virtual_stages=3"},
       "layout.virtual_stages=3 does not go with layout.schedule='zero_bubble_v', whose stages "
       "have "
       "two parts; use 2, or layout.schedule='interleaved'"},
      {{"--layout.schedule_file=mine.txt"},
       "layout.schedule_file='mine.txt' needs layout.schedule='file', which is '1f1b'; keep one"},
      {{"--layout.tp=3", "--layout.ranks=4"},
       "layout.tp=3 does not divide num_heads=16; use 1, 2, 4, 8 or 16"},
      {{"--layout.schedule=interleaved", "--layout.virtual_stages=65"},
       "layout.virtual_stages=65 is above 64; lower it"},
      {{"--train.batch_ramp=[[10, 4], [10, 8]]"},
       "train.batch_ramp has from_step=10 behind 10; steps must rise from 1 on"},
      {{"--train.batch_ramp=[[10]]"},
       "train.batch_ramp has an entry of 1 numbers; write [from_step, global_batch]"},
      {{"--train.seq_length=65"},
       "train.seq_length=65 is longer than the learned positions, max_positions=64; use at most "
       "that"},
  });
}

TEST(RunConfig, AVHasTwoPartsAStage) {
  const RunConfig config = parse("[layout]\nschedule = \"zero_bubble_v\"");
  EXPECT_EQ(config.layout.virtual_stages, 2);
  EXPECT_EQ(to_toml(parse(to_toml(config))), to_toml(config));
}

TEST(RunConfig, AScheduleFileFitsTheRun) {
  const std::string path = ::testing::TempDir() + "orthant_schedule.txt";
  write_file_atomically(path, "placement looped 2\nrank 0: F0 F0.1 B0.1 B0\n");
  const std::vector<std::string> options = {"--layout.schedule=file",
                                            "--layout.schedule_file=" + path};
  EXPECT_EQ(parse("", options).layout.virtual_stages, 2);
  std::vector<std::string> more = options;
  more.emplace_back("--train.global_batch=2");
  EXPECT_EQ(
      parse_error("", more),
      "layout.schedule_file=" + path +
          " is for 1 micro-batches, a step has 2; write them, or change train.global_batch or "
          "layout.micro_batch");
  more.back() = "--layout.virtual_stages=3";
  EXPECT_EQ(parse_error("", more),
            "layout.virtual_stages=3 does not go with layout.schedule='file', whose file says how "
            "many parts; use 2, or layout.schedule='interleaved'");
  more.back() = "--layout.schedule_file=" + path + ".none";
  EXPECT_NE(parse_error("", more), "no error");
}

TEST(RunConfig, UnknownWordsNameTheNearest) {
  expect_messages({
      {{"--layout.schedule=1fb1"},
       "layout.schedule='1fb1' is not known; did you mean '1f1b'? Known are gpipe, 1f1b, "
       "interleaved, zero_bubble, zero_bubble_v, file"},
      {{"--layout.stages=evenly"},
       "layout.stages='evenly' is not known; did you mean 'even'? Known are even, balanced"},
      {{"--precision.compute=fp23"},
       "precision.compute='fp23' is not known; did you mean 'fp32'? Known are fp32, bf16, fp16"},
      {{"--precision.master=spilt"},
       "precision.master='spilt' is not known; did you mean 'split'? Known are fp32, split"},
      {{"--device.kind=cud"},
       "device.kind='cud' is not known; did you mean 'cuda'? Known are cpu, cuda"},
      {{"--optimizer.decay=cosin"},
       "optimizer.decay='cosin' is not known; did you mean 'cosine'? Known are cosine, linear, "
       "constant, wsd"},
      {{"--data.order=shufled"},
       "data.order='shufled' is not known; did you mean 'shuffled'? Known are shuffled, "
       "sequential, megatron"},
      {{"--model.preset=tiny-gtp"},
       "model.preset='tiny-gtp' is not known; did you mean 'tiny-gpt'? Known are gpt2-124m, "
       "gpt2-350m, gpt2-774m, gpt2-1558m, bloom-560m, bloom-1b1, bloom-7b1, bloom-176b, llama-7b, "
       "llama-13b, llama-34b, llama2-70b, llama3-8b, llama3-70b, "
       "qwen2-0.5b, qwen2-1.5b, qwen2-7b, qwen2-72b, gpt3-175b, gpt-1t, tiny-gpt, tiny-bloom, "
       "tiny-llama"},
      {{"--layout.zero_stage=4"}, "layout.zero_stage=4 is not a stage of ZeRO; use 0, 1, 2 or 3"},
  });
}

TEST(RunConfig, OptionsThatGoTogetherAreTaken) {
  EXPECT_EQ(parse_error("[data]\nmax_documents = 4\n[device]\nkind = 'cuda'\n[precision]\n"
                        "compute = 'bf16'"),
            "no error");
  EXPECT_EQ(parse_error("[data]\nmax_documents = 4"), "no error");
  EXPECT_EQ(parse_error("[layout]\nsequence_parallel = true"), "no error");
}

TEST(RunConfig, SplitMastersNeedWeightsInBf16) {
  const auto refused = [](const char* compute) {
    return fmt::format(
        "precision.master='split' needs weights in bf16, the upper half of their masters, but "
        "precision.compute='{}'; use precision.compute='bf16' or precision.master='fp32'",
        compute);
  };
  expect_messages({
      {{"--precision.master=split"}, refused("fp32")},
      {{"--precision.master=split", "--precision.compute=fp16"}, refused("fp16")},
  });
  EXPECT_EQ(parse_error("[precision]\ncompute = 'bf16'\nmaster = 'split'"), "no error");
}

TEST(RunConfig, NumbersOutOfRangeAreRefused) {
  expect_messages({
      {{"--layout.tp=0"}, "layout.tp=0 must be at least 1; correct it"},
      {{"--train.global_batch=-4"}, "train.global_batch=-4 must be at least 1; correct it"},
      {{"--train.steps=-1"}, "train.steps=-1 must be at least 0; correct it"},
      {{"--train.seed=-1"}, "train.seed=-1 is negative; give 0 or more"},
      {{"--train.eval_steps=0"}, "train.eval_steps=0 must be at least 1; correct it"},
      {{"--optimizer.beta2=1.0"}, "optimizer.beta2=1 must be at least 0 and below 1; correct it"},
      {{"--optimizer.clip_grad=-1"}, "optimizer.clip_grad=-1 must be at least 0; correct it"},
      {{"--optimizer.eps=0"}, "optimizer.eps=0 must be above 0; correct it"},
      {{"--optimizer.min_lr=1"},
       "optimizer.min_lr=1 must lie between 0 and optimizer.lr=0.0003; lower it or raise lr"},
      {{"--layout.micro_batch=9000000000000000000"},
       "layout.micro_batch=9000000000000000000 is above 1000000000; correct it"},
      {{"--layout.offload_fraction=1.5"},
       "layout.offload_fraction=1.5 must lie between 0 and 1; correct it"},
      {{"--layout.deadline_s=0"}, "layout.deadline_s=0 must be above 0; give seconds"},
      {{"--layout.recompute_blocks=2"},
       "layout.recompute_blocks=2 needs a layout.recompute other than 'none'; use 0"},
      {{"--model.heads=12"},
       "model.heads=12 does not divide hidden=64; use another number or give head_dim"},
  });
}

TEST(RunConfig, OptionsThatContradictAreRefused) {
  expect_messages({
      {{"--train.eval_interval=5"},
       "train.eval_interval=5 needs validation data; give data.valid or data.split, or 0"},
      {{"--data.valid=v", "--data.split=969,30,1"},
       "data.valid and data.split='969,30,1' are both given; keep one"},
      {{"--data.split=969,30"},
       "data.split='969,30' is not three shares; write training, validation and test as 969,30,1"},
      {{"--data.split=a,b,c"},
       "data.split='a,b,c' is not three shares; write training, validation and test as 969,30,1"},
      {{"--data.weights=[1.0]"},
       "data.weights has 1 numbers for 0 prefixes of data.train; give one for each"},
      {{"--data.train=[\"a\",\"b\"]", "--data.weights=[1.0,-1.0]"},
       "data.weights has -1; weights are finite and at least 0"},
      {{"--data.train=[\"a\",\"b\"]", "--data.weights=[0.0,0.0]"},
       "data.weights sum to 0; give at least one prefix a weight above 0"},
      {{"--data.train=[\"c/a\",\"./c//a\"]", "--data.weights=[1.0,2.0]"},
       "data.train names a prefix twice, which data.weights cannot tell apart; name it once"},
      {{"--data.valid=[\"a\",\"./a\"]"},
       "data.valid names a prefix twice, each has a loss of its own; name it once"},
      {{"--data.order=megatron", "--train.seed=4294967296"},
       "train.seed=4294967296 is not a seed of data.order=megatron; give one below 4294967296"},
      {{"--checkpoint.interval=5"}, "checkpoint.interval=5 needs checkpoint.dir; give a folder"},
      {{"--model.preset=tiny-gpt", "--model.config=x"},
       "model.preset='tiny-gpt' and model.config='x' are both given; keep one"},
      {{"--model.preset=tiny-gpt", "--model.family=llama"},
       "model.family='llama' (--model.family=llama) is not that of preset tiny-gpt, which is "
       "'gpt'; remove one"},
      {{"--layout.schedule=file"},
       "layout.schedule='file' needs layout.schedule_file; give the file"},
  });
}

}  // namespace
}  // namespace orthant
