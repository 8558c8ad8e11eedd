// Checkpoints between layouts, through their files: what one layout saves every other loads bit for
// bit, and a training that changes its layout goes on as if it had not.
#include <array>
#include <filesystem>
#include <map>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"
#include "tests/support/small_training.h"
#include "train/plan_memory.h"
#include "train/save.h"
#include "train/saver.h"
#include "train/weights.h"

namespace orthant::test {
namespace {

namespace fs = std::filesystem;
using Options = std::vector<std::string>;

const std::array<Options, 12>& layouts() {
  static const std::array<Options, 12> all = {{
      {"--layout.ranks=1"},
      {"--layout.ranks=2", "--layout.tp=2"},
      {"--layout.ranks=2", "--layout.pp=2"},
      {"--layout.ranks=2", "--layout.zero_stage=0"},
      {"--layout.ranks=2", "--layout.zero_stage=1", "--layout.micro_batch=2"},
      {"--layout.ranks=4", "--layout.zero_stage=3"},
      {"--layout.ranks=4", "--layout.tp=2", "--layout.pp=2"},
      {"--layout.ranks=8", "--layout.tp=2", "--layout.pp=2", "--layout.zero_stage=2"},
      {"--layout.ranks=2", "--layout.pp=2", "--layout.schedule=zero_bubble_v"},
      {"--layout.ranks=4", "--layout.pp=2", "--layout.schedule=interleaved",
       "--layout.virtual_stages=2"},
      {"--layout.ranks=4", "--layout.tp=4", "--layout.sequence_parallel=true"},
      {"--layout.ranks=2", "--layout.offload=optimizer", "--layout.offload_fraction=0.5",
       "--layout.recompute=block"},
  }};
  return all;
}

constexpr const char* kRun = R"([model]
family = "llama"
layers = 4
hidden = 48
heads = 4
kv_heads = 2
ffn = 96
vocab = 509
max_positions = 32
tie_embeddings = true

[train]
steps = 6
global_batch = 8
seq_length = 16
)";

class CheckpointLayouts : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(root_); }
  void TearDown() override { fs::remove_all(root_); }
  std::string at(const std::string& name) const { return root_ + "/" + name; }

  RunConfig config_of(const Options& layout, const std::string& to) const {
    Options options = layout;
    options.push_back("--checkpoint.dir=" + at(to));
    return parse_run_config(kRun, "run.toml", options);
  }

  // Steps first..last from the newest checkpoint in `from` or the seed's weights, and a checkpoint
  // of the last in `to`; the losses.
  std::vector<double> pass(const Options& layout, const std::string& from, int first, int last,
                           const std::string& to) const {
    const RunConfig run = config_of(layout, to);
    const RankConfig config = rank_config(run);
    RunConfig source_run = run;
    source_run.checkpoint.dir = from.empty() ? "" : at(from);
    const Weights weights = find_weights(source_run);
    const std::vector<std::int32_t> stream = random_stream(run.model.vocab);
    std::vector<double> losses;
    ThreadWorld world(run.layout.ranks, 60);
    run_rank_threads(world, [&](int r) {
      const auto device = make_host_device();
      const Backend backend{
          .device = *device,
          .ops = "cpu",
          .join_world = [&](const CommParts& parts) { return world.join(r, parts); },
          .num_threads = 1};
      Rank rank(config, backend, dry_run(config, r, 0).memory);
      load_weights(rank, *weights.source);
      if (weights.resumed) resume(rank, *weights.resumed);
      for (int step = first; step <= last; ++step) {
        const StepData data(stream, run.layout, rank.mesh().coord(Axis::kDp), step - 1, kBatch,
                            config.seq_length);
        const auto count = static_cast<int>(data.micros.size());
        const StepResult result = rank.step(step, 1e-3, data.micros, count);
        if (r == 0) losses.push_back(result.loss);
      }
      save_checkpoint(rank, run, last, {});
    });
    return losses;
  }

  std::map<std::string, std::string> files_of(const std::string& dir) const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(at(dir))) {
      if (!entry.is_regular_file()) continue;
      files[entry.path().string().substr(at(dir).size())] = read_text_file(entry.path().string());
    }
    return files;
  }

  std::string root_ = testing::TempDir() + "orthant-layouts-" + std::to_string(::getpid());
};

TEST_F(CheckpointLayouts, EveryLayoutLoadsTheBitsOfEveryOther) {
  for (std::size_t from = 0; from < layouts().size(); ++from) {
    const std::string saved = "from" + std::to_string(from);
    pass(layouts()[from], "", 1, 1, saved);
    const auto expected = files_of(saved);
    ASSERT_FALSE(expected.empty());
    for (std::size_t to = 0; to < layouts().size(); ++to) {
      pass(layouts()[to], saved, 2, 1, "to");  // no step: loaded and saved
      EXPECT_TRUE(files_of("to") == expected) << "from layout " << from << " to " << to;
      fs::remove_all(at("to"));
    }
  }
}

TEST_F(CheckpointLayouts, TwoChangesInTheMiddleKeepTheLosses) {
  const std::vector<double> expected = pass(layouts()[0], "", 1, 6, "unchanged");
  ASSERT_EQ(expected.size(), 6U);
  for (const auto& [a, b, c] : {std::array<std::size_t, 3>{7, 0, 8}, {5, 10, 11}, {9, 6, 3}}) {
    const std::string name = fmt::format("run{}", a);
    std::vector<double> losses = pass(layouts()[a], "", 1, 2, name);
    const std::array<std::pair<std::size_t, int>, 2> more = {{{b, 3}, {c, 5}}};
    for (const auto& [layout, first] : more) {
      const auto part = pass(layouts()[layout], name, first, first + 1, name);
      losses.insert(losses.end(), part.begin(), part.end());
    }
    ASSERT_EQ(losses.size(), expected.size());
    for (std::size_t i = 0; i < losses.size(); ++i) {
      EXPECT_NEAR(losses[i], expected[i], 1e-5) << name << " step " << i + 1;
    }
  }
}

Options in_bf16(Options layout, const char* masters) {
  layout.emplace_back("--precision.compute=bf16");
  layout.push_back(fmt::format("--precision.master={}", masters));
  return layout;
}

// The files have joined masters, so that no layout, and no whole master, reads other bits.
TEST_F(CheckpointLayouts, SplitMastersLoadTheirBitsEverywhere) {
  for (const std::size_t from : {std::size_t{7}, std::size_t{11}}) {
    const std::string saved = "from" + std::to_string(from);
    pass(in_bf16(layouts()[from], "split"), "", 1, 2, saved);
    const auto expected = files_of(saved);
    ASSERT_FALSE(expected.empty());
    for (const std::size_t to : {0, 2, 4, 5, 11}) {
      for (const char* masters : {"split", "fp32"}) {
        pass(in_bf16(layouts()[to], masters), saved, 3, 2, "to");
        EXPECT_TRUE(files_of("to") == expected) << "from layout " << from << " to " << to;
        fs::remove_all(at("to"));
      }
    }
  }
}

TEST_F(CheckpointLayouts, SplitMastersGoOnWithTheSameBits) {
  const Options one = in_bf16(layouts()[0], "split");
  const std::vector<double> expected = pass(one, "", 1, 6, "unchanged");
  std::vector<double> losses = pass(one, "", 1, 3, "stopped");
  const Options offloaded =
      in_bf16({"--layout.ranks=2", "--layout.pp=2", "--layout.offload=optimizer"}, "split");
  for (const auto& [layout, step] : {std::pair(offloaded, 4), {one, 5}, {offloaded, 6}}) {
    losses.push_back(pass(layout, "stopped", step, step, "stopped").at(0));
  }
  EXPECT_EQ(losses, expected);
  const auto last = [this](const std::string& dir) {
    return files_of(dir + "/step-00000006");
  };
  EXPECT_FALSE(last("unchanged").empty());
  EXPECT_TRUE(last("stopped") == last("unchanged"));
}

TEST_F(CheckpointLayouts, SplitAndWholeMastersGoOnFromEachOther) {
  for (const auto& [first, second] : {std::pair("fp32", "split"), {"split", "fp32"}}) {
    const Options before = in_bf16(layouts()[0], first);
    const Options after = in_bf16(layouts()[0], second);
    const std::string name = fmt::format("{}-{}", first, second);
    const std::vector<double> expected = pass(before, "", 1, 6, name + "-unchanged");
    std::vector<double> losses = pass(before, "", 1, 3, name);
    const auto rest = pass(after, name, 4, 6, name);
    losses.insert(losses.end(), rest.begin(), rest.end());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(losses[i], expected[i], 1e-4) << name << " step " << i + 1;
    }
  }
}

}  // namespace
}  // namespace orthant::test
