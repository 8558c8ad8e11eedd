// Trainings on a GPU whose products are timed once: the file of algorithms, from outside.
#include "tests/cli/binary.h"

namespace orthant::test {
namespace {

class AlgorithmsOnGpus : public Workplace {
 protected:
  void SetUp() override {
    const std::string fixture = std::string(ORTHANT_SOURCE_DIR) + "/../shared/fixtures/llama-tiny";
    if (!std::filesystem::exists(fixture)) GTEST_SKIP() << "no weights: " << fixture;
    Workplace::SetUp();
    num_gpus_ = Json::parse(run({"doctor", "--json"}).out)["gpus"].size();
    if (num_gpus_ == 0) GTEST_SKIP() << "no GPU is here";
    write_content(at("gpu.toml"), fmt::format(R"([model]
weights = "{0}"
[layout]
micro_batch = 2
[train]
steps = 4
global_batch = 8
seq_length = 32
[data]
train = ["{0}/corpus"]
order = "sequential"
[device]
kind = "cuda"
)",
                                              fixture));
  }

  Finished train(const std::vector<std::string>& options) const {
    std::vector<std::string> words = {"train", "gpu.toml"};
    words.insert(words.end(), options.begin(), options.end());
    return run(words);
  }
  static bool says_kept(const Finished& done) {
    return (done.out + done.err).find(" products are kept in ") != std::string::npos;
  }
  std::vector<double> losses(const std::string& log) const {
    std::vector<double> values;
    std::ifstream file(at(log + "/metrics.jsonl"));
    for (std::string line; std::getline(file, line);) {
      values.push_back(Json::parse(line)["loss"].get<double>());
    }
    return values;
  }

  std::size_t num_gpus_ = 0;
};

TEST_F(AlgorithmsOnGpus, AreTimedOnceForRunsWithTheSameFile) {
  const Finished first = train({});
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_TRUE(says_kept(first)) << first.out << first.err;
  const std::string kept = content_of(at("log/algorithms.json"));
  const Finished second = train({"--log.dir=other", "--device.algorithms=log/algorithms.json"});
  ASSERT_EQ(second.status, 0) << second.err;
  EXPECT_FALSE(says_kept(second)) << second.out << second.err;
  EXPECT_EQ(content_of(at("log/algorithms.json")), kept);
  EXPECT_FALSE(std::filesystem::exists(at("other/algorithms.json")));
  EXPECT_EQ(losses("other"), losses("log"));
}

TEST_F(AlgorithmsOnGpus, OfAResumedRunAreThoseThatItHad) {
  std::vector<std::string> options = {"--device.algorithms=a.json", "--optimizer.decay=constant"};
  options.emplace_back("--log.dir=whole");
  ASSERT_EQ(train(options).status, 0);
  options.back() = "--log.dir=parts";
  options.emplace_back("--checkpoint.dir=ckpt");
  options.emplace_back("--train.steps=2");
  ASSERT_EQ(train(options).status, 0);
  options.back() = "--train.steps=4";
  const Finished resumed = train(options);
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_FALSE(says_kept(resumed)) << resumed.out << resumed.err;
  EXPECT_EQ(losses("parts"), losses("whole"));
}

TEST_F(AlgorithmsOnGpus, OfProcessesAreInOneFile) {
  if (num_gpus_ < 2) GTEST_SKIP() << "needs 2 GPUs, " << num_gpus_ << " are here";
  const Finished first = train({"--layout.ranks=2", "--layout.pp=2"});
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_TRUE(says_kept(first)) << first.out << first.err;
  const std::string kept = content_of(at("log/algorithms.json"));
  const Finished second = train({"--layout.ranks=2", "--layout.pp=2"});
  ASSERT_EQ(second.status, 0) << second.err;
  EXPECT_FALSE(says_kept(second)) << second.out << second.err;
  EXPECT_EQ(content_of(at("log/algorithms.json")), kept);
}

TEST_F(AlgorithmsOnGpus, InADamagedFileEndTheRunBeforeItBegins) {
  write_content(at("a.json"), "{\"format\": \"orthant-algo");
  const Finished done = train({"--device.algorithms=a.json"});
  EXPECT_EQ(done.status, 2);
  EXPECT_NE(done.err.find("a.json is damaged: "), std::string::npos) << done.err;
  EXPECT_FALSE(std::filesystem::exists(at("log")));
}

TEST_F(AlgorithmsOnGpus, OfADeterministicRunAreNotKept) {
  ASSERT_EQ(train({"--train.deterministic=true"}).status, 0);
  EXPECT_FALSE(std::filesystem::exists(at("log/algorithms.json")));
}

}  // namespace
}  // namespace orthant::test
