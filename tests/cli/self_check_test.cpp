// train --self-check from outside: what it says, writes and leaves, and what a fault does to a run.
#include <cstring>

#include "ckpt/safetensors.h"
#include "comm/process_world.h"
#include "tests/cli/binary.h"

namespace orthant::test {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Words launched(int ranks, const Words& words) {
  return joined({"launch", "-n", std::to_string(ranks), "--"}, words);
}

class SelfCheck : public Workplace {
 protected:
  // A Hugging Face folder in which one tensor is zero.
  void make_dead_weights() const {
    expect_trains({"--train.steps=1", "--checkpoint.dir=first"});
    ASSERT_EQ(run({"convert", "first", "hf"}).status, 0);
    const std::string path = at("hf/model.safetensors");
    std::string content = content_of(path);
    {
      const SafetensorsFile file(path);
      const TensorEntry* entry = file.find("transformer.h.2.mlp.c_proj.weight");
      ASSERT_NE(entry, nullptr);
      std::memset(content.data() + file.data_offset() + entry->begin, 0,
                  static_cast<std::size_t>(entry->end - entry->begin));
    }
    write_content(path, content);
    fs::remove_all(at("log"));
  }
  // Nothing that the check needed is left.
  void expect_nothing_left() const {
    for (const auto& [name, content] : files_of("")) {
      EXPECT_EQ(name.find("self-check.partial"), std::string::npos) << name;
    }
  }
  static int count(const std::string& text, const std::string& part) {
    int found = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) {
      ++found;
    }
    return found;
  }
};

TEST_F(SelfCheck, SaysWhatItFoundAndChangesNoBit) {
  const std::vector<Words> layouts = {
      {"--layout.ranks=1"},
      {"--layout.ranks=8", "--layout.tp=2", "--layout.pp=2", "--layout.sequence_parallel=true"},
      {"--layout.ranks=4", "--layout.pp=2", "--layout.schedule=zero_bubble_v",
       "--precision.compute=fp16", "--layout.zero_stage=3"},
  };
  for (const Words& layout : layouts) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(layout, " ")));
    const Words options = joined({"train", "run.toml", "--model.dropout=0.1"}, layout);
    const int ranks = layout.front().back() - '0';
    const auto into = [&](const std::string& name) {
      for (const char* folder : {"log-", "ckpt-"}) {
        fs::remove_all(at(folder + name));
      }
      return joined(options, {"--log.dir=log-" + name, "--checkpoint.dir=ckpt-" + name});
    };
    ASSERT_EQ(run(into("plain")).status, 0);
    for (const bool is_launched : {false, true}) {
      const Words words = joined(into("checked"), {"--self-check"});
      const Finished done = run(is_launched ? launched(ranks, words) : words);
      ASSERT_EQ(done.status, 0) << done.err;
      EXPECT_EQ(count(done.err, "self-check: the layout trains what one rank does"), 1) << done.err;
      EXPECT_EQ(count(done.out, "before the first step: loss 5."), 1) << done.out;
      EXPECT_EQ(count(done.out, "\nh.3 "), 1) << done.out;
      EXPECT_EQ(content_of(at("log-checked/self-check.txt")), done.out);
      EXPECT_EQ(losses("log-checked"), losses("log-plain"));
      EXPECT_TRUE(files_of("ckpt-checked") == files_of("ckpt-plain"));
    }
    expect_nothing_left();
  }
}

TEST_F(SelfCheck, ADeadLayerEndsTheRunWithOneMessage) {
  make_dead_weights();
  const Words options = {"train",         "run.toml",      "--model.weights=hf", "--layout.ranks=4",
                         "--layout.tp=2", "--layout.pp=2", "--self-check"};
  for (const bool is_launched : {false, true}) {
    const Finished done = run(is_launched ? launched(4, options) : options);
    expect_message(done, 1,
                   {"self-check: ", "dead layer h.2", "h.2.mlp.", "Nothing was trained",
                    "the weights that it begins with"});
    EXPECT_EQ(count(done.err, "dead layer"), 1) << done.err;
    EXPECT_NE(done.out.find("0.0000e+00"), std::string::npos) << done.out;
    EXPECT_TRUE(losses("log").empty());
    EXPECT_TRUE(files_of("ckpt").empty());
    expect_nothing_left();
  }
}

TEST_F(SelfCheck, MpiRanksEndTogether) {
  if (!has_mpi() || !fs::exists("/usr/bin/mpirun")) GTEST_SKIP() << "no mpirun";
  make_dead_weights();
  const auto mpirun = [this](const Words& words) {
    return Process(
               at(""),
               joined({"--allow-run-as-root", "--oversubscribe", "-n", "2", ORTHANT_BINARY, "train",
                       "run.toml", "--layout.ranks=2", "--layout.tp=2", "--self-check"},
                      words),
               {.file_bytes = 0,
                .out = "",
                .program = "/usr/bin/mpirun",
                .environment = {"ASAN_OPTIONS=detect_leaks=0"}})
        .finish();
  };
  const Finished good = mpirun({});
  EXPECT_EQ(good.status, 0) << good.err;
  EXPECT_EQ(count(good.err, "self-check: the layout trains what one rank does"), 1) << good.err;
  fs::remove_all(at("ckpt"));
  const Finished dead = mpirun({"--model.weights=hf"});
  EXPECT_EQ(dead.status, 1) << dead.err;
  EXPECT_EQ(count(dead.err, "dead layer h.2"), 1) << dead.err;
  expect_nothing_left();
}

// Where it goes on from a checkpoint, losses and spreads are those of trained weights.
TEST_F(SelfCheck, ARunThatGoesOnIsCheckedAgain) {
  const Words options = {"--layout.ranks=2", "--layout.pp=2", "--optimizer.lr=0.02"};
  expect_trains(joined(options, {"--train.steps=20", "--checkpoint.dir=whole", "--log.dir=log0"}));
  expect_trains(joined(options, {"--train.steps=20", "--checkpoint.interval=10"}));
  fs::remove_all(at("ckpt/step-00000020"));
  const Finished done = train(joined(options, {"--train.steps=20", "--self-check"}));
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(losses("log"), losses("log0"));
  EXPECT_TRUE(files_of("ckpt/step-00000020") == files_of("whole/step-00000020"));
  expect_nothing_left();
}

// Without a folder of checkpoints the files of the check lie beside the log.
TEST_F(SelfCheck, NeedsNoCheckpointFolder) {
  const Finished done = train({"--checkpoint.dir=", "--layout.ranks=2", "--self-check"});
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_FALSE(fs::exists(at("ckpt")));
  expect_nothing_left();
}

// What is wrong with the run file is said before anything is tried.
TEST_F(SelfCheck, ARefusedRunIsNotTried) {
  expect_train_refused({"--self-check", "--layout.tp=3"}, {"layout.tp=3"});
  expect_train_refused({"--self-check", "--data.train=[\"none\"]"}, {"none"});
}

}  // namespace
}  // namespace orthant::test
