// Stops of every kind, and runs that go on from them: no bit differs from a run that never stopped.
#include <algorithm>
#include <cmath>
#include <random>

#include "ckpt/checkpoint.h"
#include "tests/cli/binary.h"

namespace orthant::test {
namespace {

namespace fs = std::filesystem;

class Resume : public Workplace {
 protected:
  static std::vector<std::string> with(std::vector<std::string> options,
                                       const std::vector<std::string>& more) {
    options.insert(options.end(), more.begin(), more.end());
    return options;
  }
  static std::vector<std::string> layout(int ranks, int tp, int pp) {
    return {fmt::format("--layout.ranks={}", ranks), fmt::format("--layout.tp={}", tp),
            fmt::format("--layout.pp={}", pp)};
  }
  static std::string step_folder(int step) { return fmt::format("step-{:08}", step); }

  // After a stop behind the first of 4 steps.
  void expect_same_when_stopped(const std::vector<std::string>& options) const {
    expect_trains(with(options, {"--log.dir=log0", "--checkpoint.dir=ckpt0"}));
    expect_trains(with(options, {"--train.max_minutes=1e-6"}));
    EXPECT_EQ(losses("log").size(), 1U);
    expect_trains(options);
    EXPECT_EQ(losses("log"), losses("log0"));
    EXPECT_TRUE(files_of("ckpt/" + step_folder(4)) == files_of("ckpt0/" + step_folder(4)));
  }
  std::vector<double> loss_numbers(const std::string& log) const {
    std::vector<double> numbers;
    std::ifstream file(at(log) + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      numbers.push_back(Json::parse(line)["loss"].get<double>());
    }
    return numbers;
  }
};

TEST_F(Resume, AfterASignalNoBitDiffers) {
  const std::vector<std::string> options = {"--train.steps=200", "--train.global_batch=2"};
  expect_trains(with(options, {"--log.dir=log0", "--checkpoint.dir=ckpt0"}));
  for (const int signal : {SIGTERM, SIGINT}) {
    fs::remove_all(at("ckpt"));
    fs::remove_all(at("log"));
    Process process(at(""), with({"train", "run.toml"}, options), {.file_bytes = 0, .out = ""});
    ASSERT_TRUE(process.wait_until([&] { return losses("log").size() >= 3; }));
    process.send(signal);
    const Finished stopped = process.finish();
    ASSERT_EQ(stopped.status, 128 + signal) << stopped.err;
    EXPECT_EQ(stopped.num_error_lines(), 0) << stopped.err;
    const auto steps = static_cast<int>(losses("log").size());
    EXPECT_TRUE(fs::exists(at("ckpt/" + step_folder(steps) + "/manifest.json")));

    const Finished resumed = train(options);
    ASSERT_EQ(resumed.status, 0) << resumed.err;
    EXPECT_EQ(losses("log"), losses("log0"));
    EXPECT_TRUE(files_of("ckpt/" + step_folder(200)) == files_of("ckpt0/" + step_folder(200)));
  }
}

TEST_F(Resume, AfterALimitOfTimeNoBitDiffers) {
  expect_trains({"--log.dir=log0", "--checkpoint.dir=ckpt0"});
  for (std::size_t step = 1; step <= 3; ++step) {
    expect_trains({"--train.max_minutes=1e-6"});
    EXPECT_EQ(losses("log").size(), step);
  }
  EXPECT_TRUE(fs::exists(at("ckpt/" + step_folder(3))));
  expect_trains({});
  EXPECT_EQ(losses("log"), losses("log0"));
  EXPECT_TRUE(files_of("ckpt/" + step_folder(4)) == files_of("ckpt0/" + step_folder(4)));
  const Finished again = train({});
  EXPECT_EQ(again.status, 0);
  EXPECT_NE(again.err.find("all 4 steps are done"), std::string::npos) << again.err;
  EXPECT_EQ(losses("log"), losses("log0"));
}

TEST_F(Resume, OfSplitMastersDiffersInNoBit) {
  expect_same_when_stopped({"--precision.compute=bf16", "--precision.master=split",
                            "--layout.offload=optimizer", "--layout.offload_fraction=0.5",
                            "--layout.ranks=2"});
}

// Scale, rounding by chance, gathered weights and the host's state all go on where they were.
TEST_F(Resume, OfEverythingNarrowShardedAndOffloadedDiffersInNoBit) {
  expect_same_when_stopped({"--precision.compute=fp16", "--precision.grad_accum=bf16",
                            "--optimizer.moments=bf16", "--layout.offload=optimizer",
                            "--layout.zero_stage=3", "--layout.ranks=2"});
  std::ifstream file(at("log/metrics.jsonl"));
  for (std::string line; std::getline(file, line);) {
    const Json step = Json::parse(line);
    EXPECT_EQ(step["loss_scale"], 65536) << line;
    EXPECT_EQ(step["skipped"], 0) << line;
  }
}

TEST_F(Resume, InAnotherLayoutFollowsTheSameCurve) {
  const std::vector<std::string> options = {"--train.steps=12", "--checkpoint.interval=4"};
  expect_trains(with(options, {"--log.dir=log0", "--checkpoint.dir=ckpt0"}));
  expect_trains(with(options, layout(8, 2, 2)));
  fs::remove_all(at("ckpt/" + step_folder(8)));
  fs::remove_all(at("ckpt/" + step_folder(12)));
  expect_trains(options);
  fs::remove_all(at("ckpt/" + step_folder(12)));
  const Finished last = train(with(options, layout(4, 4, 1)));
  ASSERT_EQ(last.status, 0) << last.err;
  EXPECT_NE(last.err.find("checkpoint ckpt/step-00000008"), std::string::npos) << last.err;
  const std::vector<double> expected = loss_numbers("log0");
  const std::vector<double> found = loss_numbers("log");
  ASSERT_EQ(found.size(), 12U);
  for (std::size_t i = 0; i < 12; ++i) {
    EXPECT_NEAR(found[i], expected[i], 1e-5) << "step " << i + 1;
  }
}

TEST_F(Resume, OfOtherBatchesAndRanksReadsTheSamplesThatFollow) {
  const std::vector<std::string> plain = {"--train.steps=6", "--checkpoint.interval=3"};
  const std::vector<std::string> grown = with(plain, {"--train.batch_ramp=[[4,16]]"});
  expect_trains(with(grown, {"--log.dir=log0", "--checkpoint.dir=ckpt0"}));
  // The batch grows by the run file of the second start alone, and every part of it is another.
  expect_trains(with(plain, with(layout(4, 1, 1), {"--layout.micro_batch=2"})));
  fs::remove_all(at("ckpt/" + step_folder(6)));
  const std::vector<std::string> other =
      with(grown, {"--layout.ranks=4", "--layout.tp=2", "--layout.micro_batch=4"});
  expect_trains(other);
  const std::vector<double> expected = loss_numbers("log0");
  const std::vector<double> found = loss_numbers("log");
  ASSERT_EQ(found.size(), 6U);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_NEAR(found[i], expected[i], 1e-5) << "step " << i + 1;
  }

  const auto parts = [this](const std::vector<std::string>& options) {
    const Finished shown = run(with({"data", "show", "run.toml", "--step=5", "--json"}, options));
    EXPECT_EQ(shown.status, 0) << shown.err;
    std::map<std::int64_t, Json> samples;
    const Json all = Json::parse(shown.out);
    for (const Json& sample : all.at("samples")) {
      samples[sample.at("position").get<std::int64_t>()] = sample.at("parts");
    }
    return samples;
  };
  const std::map<std::int64_t, Json> samples = parts(grown);
  ASSERT_EQ(samples.size(), 16U);
  EXPECT_EQ(samples.begin()->first, 3 * 8 + 16);
  EXPECT_EQ(parts(other), samples);

  // A batch that would have been another from the first step on is no continuation.
  fs::remove_all(at("ckpt/" + step_folder(6)));
  expect_train_refused({"--train.steps=6", "--train.global_batch=16"}, {"global_batch"});
}

TEST_F(Resume, TheLogHasTimeAndRateOfEachCheckpointOnce) {
  const auto steps_of = [this] {
    std::vector<std::int64_t> steps;
    std::ifstream file(at("log/checkpoints.jsonl"));
    for (std::string line; std::getline(file, line);) {
      const Json saved = Json::parse(line);
      steps.push_back(saved.at("step").get<std::int64_t>());
      std::int64_t bytes = 0;
      for (const auto& [name, content] : files_of("ckpt/" + step_folder(2))) {
        if (name.ends_with(".safetensors")) bytes += static_cast<std::int64_t>(content.size());
      }
      EXPECT_EQ(saved.at("bytes"), bytes);
      const auto seconds = saved.at("seconds").get<double>();
      EXPECT_GT(seconds, 0);
      EXPECT_NEAR(saved.at("bytes_per_s").get<double>() * seconds / static_cast<double>(bytes), 1,
                  1e-9);
      EXPECT_GE(saved.at("waited_s").get<double>(), 0);
      EXPECT_LE(saved.at("waited_s").get<double>(), seconds);
    }
    return steps;
  };
  const std::vector<std::string> options = {"--train.steps=7", "--checkpoint.interval=2"};
  expect_trains(with(options, {"--layout.ranks=2"}));
  EXPECT_EQ(steps_of(), (std::vector<std::int64_t>{2, 4, 6, 7}));
  fs::remove_all(at("ckpt/" + step_folder(6)));
  fs::remove_all(at("ckpt/" + step_folder(7)));
  expect_trains(options);
  EXPECT_EQ(steps_of(), (std::vector<std::int64_t>{2, 4, 6, 7}));
}

TEST_F(Resume, CheckpointsDoNotShowTheDepthOfThePipeline) {
  for (const int tp : {1, 2}) {
    std::map<std::string, std::string> expected;
    std::vector<std::string> curve;
    for (const int pp : {1, 2, 4}) {
      if (tp * pp > 4) continue;
      SCOPED_TRACE(fmt::format("tp {} pp {}", tp, pp));
      const std::string name = fmt::format("-{}-{}", tp, pp);
      expect_trains(
          with(layout(tp * pp, tp, pp), {"--checkpoint.dir=ckpt" + name, "--log.dir=log" + name}));
      if (pp == 1) {
        expected = files_of("ckpt" + name);
        curve = losses("log" + name);
      }
      EXPECT_EQ(losses("log" + name), curve);
      EXPECT_TRUE(files_of("ckpt" + name) == expected);
    }
  }
}

TEST_F(Resume, AKilledRunLeavesAWholeCheckpoint) {
  const std::vector<std::string> options = {"train",
                                            "run.toml",
                                            "--train.steps=100000",
                                            "--train.global_batch=1",
                                            "--checkpoint.interval=1",
                                            "--checkpoint.keep=2"};
  std::mt19937 random(7);
  std::string newest;  // before the start
  for (int kill = 0; kill < 20; ++kill) {
    SCOPED_TRACE(fmt::format("kill {}", kill));
    // Every third run begins again and writes over the checkpoints that are there.
    const bool begins_again = kill % 3 == 2;
    Process process(at(""),
                    with(options, {begins_again ? "--checkpoint.resume=false" : "--log.dir=log"}),
                    {.file_bytes = 0, .out = ""});
    ASSERT_TRUE(process.wait_until(
        [&] { return process.err().find("checkpoint saved") != std::string::npos; }));
    if (!newest.empty() && !begins_again) {
      EXPECT_NE(process.err().find("weights: checkpoint " + newest), std::string::npos)
          << process.err();
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));
    process.send(SIGKILL);
    ASSERT_EQ(process.finish().status, 128 + SIGKILL);
    std::vector<std::string> damaged;
    const auto found = newest_checkpoint(at("ckpt"), damaged);
    EXPECT_TRUE(damaged.empty()) << damaged.front();
    ASSERT_TRUE(found.has_value());
    newest = found->folder.substr(at("").size());
  }
  expect_trains({"--train.steps=100000", "--train.global_batch=1", "--train.max_minutes=1e-6"});
  for (const std::string& name : names_of(files_of("ckpt"))) {
    EXPECT_EQ(name.find(".partial"), std::string::npos) << name;
  }
}

// model.weights takes a checkpoint's weights and nothing else of it: as if they had been exported.
TEST_F(Resume, WeightsAloneBeginANewRun) {
  expect_trains({});
  ASSERT_EQ(run({"convert", "ckpt", "hf"}).status, 0);
  const std::vector<std::string> options =
      with(layout(2, 2, 1), {"--optimizer.lr=0.001", "--train.steps=3"});
  for (const std::string& from :
       {std::string("hf"), std::string("ckpt"), "ckpt/" + step_folder(4)}) {
    const std::string name = from == "hf" ? "0" : "1";
    fs::remove_all(at("ckpt1"));
    fs::remove_all(at("log1"));
    const Finished done = train(with(options, {"--model.weights=" + from, "--log.dir=log" + name,
                                               "--checkpoint.dir=ckpt" + name}));
    ASSERT_EQ(done.status, 0) << done.err;
    EXPECT_EQ(losses("log" + name).size(), 3U);
    EXPECT_EQ(losses("log" + name), losses("log0"));
    EXPECT_TRUE(files_of("ckpt" + name + "/" + step_folder(3)) ==
                files_of("ckpt0/" + step_folder(3)));
  }
  expect_train_refused({"--model.weights=ckpt", "--model.layers=2", "--checkpoint.dir=ckpt2"},
                       {"model.layers=2", "does not fit the weights in ckpt"});
}

// A model that has learned a text tells its words from others.
TEST_F(Resume, ATrainedModelChoosesWhatItHasRead) {
  std::string text;
  for (int i = 0; i < 400; ++i) {
    text += i % 2 == 0 ? "the cat sat on the mat. " : "a dog ran to the sea. ";
  }
  write_content(at("text.txt"), text);
  ASSERT_EQ(run({"data", "pack", "text.txt", "--tokenizer", "bytes", "--output", "corpus"}).status,
            0);
  expect_trains({"--train.steps=150"});
  write_content(at("tasks.jsonl"),
                R"({"context": "the cat sat on", "choices": [" the sky.", " the mat."], "answer": 1}
{"context": "a dog ran to ", "choices": ["the sea.", "xqzvkjw.", "sea the."], "answer": 0}
)");
  const Finished done = run({"score", "ckpt", "--choices", "tasks.jsonl", "--json"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(Json::parse(done.out)["accuracy"], 1.0) << done.out;
  expect_refused({"score", "ckpt", "--choices", "run.toml"}, 2, {"run.toml:1 is no JSON object"});
}

TEST_F(Resume, ACheckpointOfAnotherProgramIsRefusedByName) {
  fs::create_directories(at("theirs/global_step10"));
  write_content(at("theirs/latest"), "global_step10");
  write_content(at("theirs/global_step10/mp_rank_00_model_states.pt"), "x");
  expect_train_refused({"--checkpoint.dir=theirs"}, {"a checkpoint of DeepSpeed"});
  expect_train_refused({"--model.weights=theirs"}, {"a checkpoint of DeepSpeed"});
  expect_refused({"convert", "theirs", "hf"}, 2, {"a checkpoint of DeepSpeed"});
  expect_refused({"generate", "theirs", "--prompt", "a"}, 2, {"a checkpoint of DeepSpeed"});
}

TEST_F(Resume, BeginningAgainSaysWhatStaysNewest) {
  expect_trains({});
  const Finished again = train({"--checkpoint.resume=false", "--train.steps=2"});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_NE(again.err.find("ckpt/step-00000004 is not used"), std::string::npos) << again.err;
  expect_trains({"--checkpoint.resume=false", "--train.steps=3", "--checkpoint.keep=1"});
  EXPECT_TRUE(fs::exists(at("ckpt/" + step_folder(3))));
  EXPECT_TRUE(fs::exists(at("ckpt/" + step_folder(4))));
}

}  // namespace
}  // namespace orthant::test
