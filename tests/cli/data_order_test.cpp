// What a run reads: blends through a resume with other weights, Megatron's order, documents, and
// data show.
#include <cstring>
#include <numeric>

#include "ckpt/manifest.h"
#include "ckpt/safetensors.h"
#include "tests/cli/binary.h"

namespace orthant::test {
namespace {

class DataOrder : public Workplace {
 protected:
  void SetUp() override {
    Workplace::SetUp();
    std::string lines;
    for (int i = 0; i < 300; ++i) {
      lines += fmt::format("{{\"text\": \"line {} of many, some {} longer\"}}\n", i,
                           std::string(static_cast<std::size_t>(i % 9), 'x'));
    }
    write_content(at("lines.jsonl"), lines);
    ASSERT_EQ(
        run({"data", "pack", "lines.jsonl", "--tokenizer", "bytes", "--output", "lines"}).status,
        0);
  }

  static std::vector<std::string> blend(double corpus, double lines) {
    return {"--data.train=[\"corpus\",\"lines\"]",
            fmt::format("--data.weights=[{:.1f},{:.1f}]", corpus, lines)};
  }
  Json last_metrics() const {
    Json last;
    std::ifstream file(at("log/metrics.jsonl"));
    for (std::string line; std::getline(file, line);) {
      last = Json::parse(line);
    }
    return last;
  }
  // The samples of a step, as data show tells them.
  Json shown(int step, std::vector<std::string> options) const {
    options.insert(options.begin(),
                   {"data", "show", "run.toml", fmt::format("--step={}", step), "--json"});
    const Finished done = run(options);
    EXPECT_EQ(done.status, 0) << done.err;
    return Json::parse(done.out).at("samples");
  }
  static int samples_of(const Json& samples, const std::string& dataset) {
    int count = 0;
    for (const Json& sample : samples) {
      if (sample.at("parts").at(0).at("dataset") == dataset) ++count;
    }
    return count;
  }
};

TEST_F(DataOrder, ABlendIsCountedInTheLogAndGoesOnWithOtherWeights) {
  std::vector<std::string> options = blend(1, 3);
  expect_trains(options);
  EXPECT_EQ(last_metrics().at("samples/corpus"), 8);  // 4 steps of 8 samples
  EXPECT_EQ(last_metrics().at("samples/lines"), 24);

  options = blend(1, 1);
  options.push_back("--train.steps=6");
  expect_trains(options);
  EXPECT_EQ(last_metrics().at("samples/corpus"), 16);
  EXPECT_EQ(last_metrics().at("samples/lines"), 32);
  const Manifest manifest =
      parse_manifest(content_of(at("ckpt/step-00000006/manifest.json")), "manifest");
  ASSERT_EQ(manifest.blends.size(), 2u);
  EXPECT_EQ(manifest.blends[1].position, 32);

  // What the run read, told afterwards from its newest checkpoint.
  EXPECT_EQ(samples_of(shown(4, options), "lines"), 6);
  EXPECT_EQ(samples_of(shown(5, options), "lines"), 4);
}

TEST_F(DataOrder, ShowTellsEverySampleOfAStepAndWhoReadsIt) {
  const std::vector<std::string> options = {"--data.train=[\"lines\"]", "--layout.ranks=2",
                                            "--layout.micro_batch=2"};
  const Json samples = shown(3, options);
  ASSERT_EQ(samples.size(), 8u);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const Json& sample = samples[i];
    EXPECT_EQ(sample.at("position"), 16 + i);
    EXPECT_EQ(sample.at("row"), i % 2);
    EXPECT_EQ(sample.at("dp"), i / 2 % 2);
    EXPECT_EQ(sample.at("micro"), i / 4);
    int tokens = 0;
    for (const Json& part : sample.at("parts")) {
      tokens += part.at("tokens").get<int>();
    }
    EXPECT_EQ(tokens, 17);
  }
  const Finished text = run({"data", "show", "run.toml", "--step", "1", "--tokenizer", "bytes",
                             "--data.order=sequential", "--data.train=[\"lines\"]"});
  EXPECT_NE(text.out.find("sample 0, dp 0 micro-batch 0 row 0: lines document 0 tokens 0 to 16\n"
                          "  \"line 0 of many, s\"\n"),
            std::string::npos)
      << text.out;
}

TEST_F(DataOrder, MegatronsOrderTrainsAndRefusesOtherWeightsAtAResume) {
  std::vector<std::string> options = blend(1, 3);
  options.push_back("--data.order=megatron");
  expect_trains(options);
  EXPECT_EQ(last_metrics().at("samples/lines"), 24);
  options = blend(1, 1);
  options.insert(options.end(), {"--data.order=megatron", "--train.steps=6"});
  expect_train_refused(options, {"data.weights cannot change at a resume", "sample 32"});
}

TEST_F(DataOrder, DocumentsAreKeptApartUnlessTheyAreToBeCrossed) {
  const auto losses_of = [this](const std::string& log, std::vector<std::string> options) {
    options.insert(options.end(),
                   {"--data.train=[\"lines\"]", "--checkpoint.dir=", "--log.dir=" + log});
    expect_trains(options);
    return losses(log);
  };
  const std::vector<std::string> apart = losses_of("log", {});
  int loss_tokens = 0;
  for (const Json& sample : shown(4, {"--data.train=[\"lines\"]"})) {
    // The parts of a sample are what its tokens are of; the step into each but the first is masked.
    EXPECT_EQ(sample.at("loss_tokens"), 17 - sample.at("parts").size());
    loss_tokens += sample.at("loss_tokens").get<int>();
  }
  EXPECT_LT(loss_tokens, 8 * 16);
  EXPECT_EQ(last_metrics().at("loss_tokens"), loss_tokens);
  EXPECT_EQ(last_metrics().at("tokens"), 4 * 8 * 16);

  EXPECT_EQ(losses_of("limited", {"--data.max_documents=3"}), apart);
  EXPECT_EQ(losses_of("deep", {"--layout.ranks=2", "--layout.pp=2"}), apart);
  EXPECT_NE(losses_of("log", {"--data.cross_documents=true"}), apart);
  EXPECT_FALSE(last_metrics().contains("loss_tokens"));
  expect_train_refused({"--data.train=[\"lines\"]", "--data.max_documents=1"},
                       {"data.max_documents=1: sequence", "of lines has 2 documents"});
}

TEST_F(DataOrder, AnEvaluationIsTheMeanOverTheTokensThatCount) {
  const std::vector<std::string> options = {"eval", "run.toml", "--data.valid=[\"lines\"]",
                                            "--train.eval_steps=1", "--json"};
  std::vector<std::string> with_logits = options;
  with_logits.insert(with_logits.end(), {"--logits", "logits.safetensors"});
  const Json one = Json::parse(run(with_logits).out);
  const SafetensorsFile file(at("logits.safetensors"));
  const auto bytes = file.data(*file.find("per_token_loss"));
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  ASSERT_EQ(values.size(), 8U * 16U);
  const auto counted = std::count_if(values.begin(), values.end(), [](float x) { return x != 0; });
  EXPECT_LT(counted, 8 * 16);
  EXPECT_EQ(one.at("tokens"), counted);
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  EXPECT_NEAR(one.at("loss").get<double>(), sum / static_cast<double>(counted), 1e-6);

  // Over batches of different counts it is no mean of means; nor does the layout matter.
  std::vector<std::string> several = options;
  several[3] = "--train.eval_steps=7";
  const Json plain = Json::parse(run(several).out);
  several.insert(several.end(), {"--layout.ranks=4", "--layout.tp=2", "--layout.micro_batch=2"});
  const Json split = Json::parse(run(several).out);
  EXPECT_EQ(plain.at("tokens"), split.at("tokens"));
  EXPECT_NEAR(plain.at("loss").get<double>(), split.at("loss").get<double>(), 1e-6);
}

TEST_F(DataOrder, AStepThatTheRunHasNotIsRefused) {
  expect_refused({"data", "show", "run.toml", "--step", "5"}, 2, {"this run has steps 1 to 4"});
}

}  // namespace
}  // namespace orthant::test
