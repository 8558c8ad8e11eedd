// Trainings on two GPUs, a process each, against float64 references; and what is said when a
// process is lost.
#include <cmath>
#include <csignal>

#include "tests/cli/binary.h"

namespace orthant::test {
namespace {

class OnGpus : public Workplace {
 protected:
  void SetUp() override {
    fixture_ = std::string(ORTHANT_SOURCE_DIR) + "/../shared/fixtures/llama-tiny";
    if (!std::filesystem::exists(fixture_)) GTEST_SKIP() << "no references: " << fixture_;
    Workplace::SetUp();
    const Json found = Json::parse(run({"doctor", "--json"}).out);
    if (found["gpus"].size() < 2) {
      GTEST_SKIP() << "needs 2 GPUs, " << found["gpus"].size() << " are here";
    }
    write_content(at("gpu.toml"), fmt::format(R"([model]
weights = "{0}"
[layout]
ranks = 2
micro_batch = 2
[train]
steps = 20
global_batch = 8
seq_length = 32
eval_steps = 1
[optimizer]
lr = 0.005
min_lr = 0.0005
warmup_steps = 4
[data]
train = ["{0}/corpus"]
valid = ["{0}/corpus"]
order = "sequential"
[precision]
compute = "fp32"
[device]
kind = "cuda"
)",
                                              fixture_));
  }

  struct Curve {
    std::vector<double> loss;
    std::vector<double> norm;
  };
  Curve curve_of(const std::vector<std::string>& options) const {
    std::filesystem::remove_all(at("log"));
    std::vector<std::string> words = {"train", "gpu.toml"};
    words.insert(words.end(), options.begin(), options.end());
    const Finished done = run(words);
    EXPECT_EQ(done.status, 0) << done.err;
    Curve curve;
    std::ifstream file(at("log/metrics.jsonl"));
    for (std::string line; std::getline(file, line);) {
      const Json json = Json::parse(line);
      curve.loss.push_back(json["loss"].get<double>());
      curve.norm.push_back(json["grad_norm"].get<double>());
    }
    return curve;
  }
  void expect_reference(const Curve& curve) const {
    const Json expected = Json::parse(content_of(fixture_ + "/expected.json"));
    ASSERT_EQ(curve.loss.size(), 20U);
    for (std::size_t i = 0; i < curve.loss.size(); ++i) {
      const double norm = expected["grad_norm"][i];
      EXPECT_NEAR(curve.loss[i], expected["loss"][i].get<double>(), 1e-5) << "step " << i + 1;
      EXPECT_NEAR(curve.norm[i] / norm, 1, 1e-4) << "step " << i + 1;
    }
  }

  std::string fixture_;
};

TEST_F(OnGpus, EveryLayoutFollowsTheReference) {
  const std::vector<std::string> layouts[] = {
      {"--layout.tp=2"},
      {"--layout.tp=2", "--layout.sequence_parallel=true"},
      {"--layout.tp=2", "--layout.sequence_parallel=true", "--layout.tp_overlap=halves"},
      {"--layout.pp=2"},
      {"--layout.pp=2", "--layout.schedule=interleaved", "--layout.virtual_stages=2"},
      {"--layout.pp=2", "--layout.schedule=zero_bubble"},
      {"--layout.pp=2", "--layout.schedule=zero_bubble_v"},
      {"--layout.zero_stage=0"},
      {"--layout.zero_stage=1"},
      {"--layout.zero_stage=2"},
      {"--layout.zero_stage=3"}};
  for (const std::vector<std::string>& layout : layouts) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(layout, " ")));
    expect_reference(curve_of(layout));
  }
}

TEST_F(OnGpus, WhatChangesNoBitChangesNoneInDeterministicMode) {
  const auto exact = [&](std::vector<std::string> options) {
    options.emplace_back("--train.deterministic=true");
    return curve_of(options);
  };
  const Curve one = exact({"--layout.ranks=1"});
  for (const char* schedule : {"1f1b", "gpipe", "zero_bubble"}) {
    const Curve deep = exact({"--layout.pp=2", fmt::format("--layout.schedule={}", schedule)});
    EXPECT_EQ(deep.loss, one.loss) << schedule;
    EXPECT_EQ(deep.norm, one.norm) << schedule;
  }
  const Curve zero_2 = exact({"--layout.zero_stage=2"});
  const Curve zero_3 = exact({"--layout.zero_stage=3"});
  EXPECT_EQ(zero_3.loss, zero_2.loss);
  EXPECT_EQ(zero_3.norm, zero_2.norm);
}

class LostOnGpus : public OnGpus {
 protected:
  // An endless training, once its first steps are made.
  void lose(int signal, int status, const std::vector<std::string>& parts) const {
    Process process(
        at("."),
        {"train", "gpu.toml", "--train.steps=1000000", "--layout.tp=2", "--layout.deadline_s=3"},
        {.file_bytes = 0, .out = ""});
    const auto has_begun = [&] {
      return content_of(at("log/metrics.jsonl")).find("\"step\":5,") != std::string::npos;
    };
    ASSERT_TRUE(process.wait_until(has_begun)) << process.err();
    std::vector<pid_t> ranks;
    std::ifstream file(fmt::format("/proc/{0}/task/{0}/children", process.pid()));
    for (pid_t pid = 0; file >> pid;) {
      ranks.push_back(pid);
    }
    ASSERT_EQ(ranks.size(), 2U);
    ::kill(ranks.back(), signal);
    const Finished done = process.finish();
    EXPECT_EQ(done.status, status) << done.err;
    for (const std::string& part : parts) {
      EXPECT_NE(done.err.find(part), std::string::npos) << "no '" << part << "' in: " << done.err;
    }
    std::filesystem::remove_all(at("log"));
    expect_reference(curve_of({"--layout.tp=2"}));  // the GPUs are as they were
  }
};

TEST_F(LostOnGpus, AKilledProcessIsNamed) {
  lose(SIGKILL, 4, {"rank 1 was killed by signal 9"});
}

TEST_F(LostOnGpus, AProcessThatStopsIsNamed) {
  lose(SIGSTOP, 4, {"rank 0 (", "waited 3 s", "; rank 1 "});
}

}  // namespace
}  // namespace orthant::test
