// Validation data of several sources: the loss of each is what it is alone, in eval and in train.
#include <cmath>

#include "tests/cli/binary.h"

namespace orthant::test {
namespace {

constexpr const char* kBoth = "--data.valid=[\"corpus\",\"numbers\"]";

class EvalSources : public Workplace {
 protected:
  void SetUp() override {
    Workplace::SetUp();
    std::string lines;
    for (int i = 0; i < 200; ++i) {
      lines += fmt::format("{{\"text\": \"{}\"}}\n", i * i * 7919);
    }
    write_content(at("numbers.jsonl"), lines);
    ASSERT_EQ(run({"data", "pack", "numbers.jsonl", "--tokenizer", "bytes", "--output", "numbers"})
                  .status,
              0);
  }

  // What eval says of some sources.
  Json evaluated(const std::string& sources, std::vector<std::string> options) const {
    options.insert(options.begin(), {"eval", "run.toml", sources, "--train.eval_steps=3",
                                     "--layout.micro_batch=2", "--json"});
    const Finished done = run(options);
    EXPECT_EQ(done.status, 0) << done.err;
    return Json::parse(done.out);
  }
  std::vector<Json> evaluations(const std::string& log) const {
    std::vector<Json> found;
    std::ifstream file(at(log) + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      Json metrics = Json::parse(line);
      if (metrics.contains("valid_loss")) found.push_back(std::move(metrics));
    }
    return found;
  }
};

TEST_F(EvalSources, EachHasTheBitsThatItHasAloneOnEveryLayout) {
  const std::vector<std::vector<std::string>> layouts = {
      {},
      {"--layout.ranks=2"},
      {"--layout.ranks=2", "--layout.tp=2"},
      {"--layout.ranks=2", "--layout.pp=2"},
      {"--layout.ranks=8", "--layout.tp=2", "--layout.pp=2"},
      {"--layout.ranks=4", "--layout.tp=4", "--layout.sequence_parallel=true"}};
  const Json plain = evaluated(kBoth, {});
  for (const std::vector<std::string>& layout : layouts) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(layout, " ")));
    const Json corpus = evaluated("--data.valid=[\"corpus\"]", layout);
    const Json numbers = evaluated("--data.valid=[\"numbers\"]", layout);
    ASSERT_EQ(corpus.at("sources").size(), 1U);
    EXPECT_EQ(corpus.at("sources")[0].at("prefix"), "corpus");
    for (const char* key : {"loss", "perplexity", "tokens"}) {
      EXPECT_EQ(corpus.at("sources")[0].at(key), corpus.at(key)) << key;
    }
    EXPECT_NE(corpus.at("loss"), numbers.at("loss"));

    const Json both = evaluated(kBoth, layout);
    ASSERT_EQ(both.at("sources").size(), 2U);
    EXPECT_EQ(both.at("sources")[0], corpus.at("sources")[0]);
    EXPECT_EQ(both.at("sources")[1], numbers.at("sources")[0]);
    const double tokens[] = {corpus.at("tokens").get<double>(), numbers.at("tokens").get<double>()};
    EXPECT_LT(tokens[1], tokens[0]);  // of more documents, whose first tokens do not count
    EXPECT_EQ(both.at("tokens"), tokens[0] + tokens[1]);
    const double nats =
        corpus.at("loss").get<double>() * tokens[0] + numbers.at("loss").get<double>() * tokens[1];
    EXPECT_NEAR(both.at("loss").get<double>(), nats / (tokens[0] + tokens[1]), 1e-12);
    EXPECT_EQ(both.at("perplexity"), std::exp(both.at("loss").get<double>()));
    EXPECT_NEAR(both.at("loss").get<double>(), plain.at("loss").get<double>(), 1e-6);
  }
}

TEST_F(EvalSources, ALineOfTheTextIsOfEach) {
  const std::vector<std::string> eval = {"eval", "run.toml", "--train.eval_steps=2"};
  const std::string one = run(eval).out;
  EXPECT_EQ(std::count(one.begin(), one.end(), '\n'), 1) << one;
  std::vector<std::string> with_both = eval;
  with_both.emplace_back(kBoth);
  const std::string both = run(with_both).out;
  EXPECT_EQ(std::count(both.begin(), both.end(), '\n'), 3) << both;
  EXPECT_NE(both.find("\ncorpus: " + one), std::string::npos) << both;
  EXPECT_NE(both.find("\nnumbers: loss "), std::string::npos) << both;
}

TEST_F(EvalSources, TrainingTellsEachInItsLogAndHasTheSameBits) {
  for (const std::vector<std::string>& layout :
       {std::vector<std::string>{},
        {"--layout.ranks=8", "--layout.tp=2", "--layout.pp=2", "--layout.zero_stage=2"}}) {
    const auto trained = [&](const std::string& log, std::vector<std::string> options) {
      options.insert(options.end(), layout.begin(), layout.end());
      options.insert(options.end(), {"--log.dir=" + log, "--checkpoint.dir=ckpt-" + log});
      const Finished done = train(options);
      EXPECT_EQ(done.status, 0) << done.err;
      return done.err;
    };
    trained("without", {});
    trained("one", {"--train.eval_interval=2", "--train.eval_steps=2"});
    const std::string text =
        trained("both", {kBoth, "--train.eval_interval=2", "--train.eval_steps=2"});
    EXPECT_EQ(losses("both"), losses("without"));
    EXPECT_EQ(losses("both").size(), 4U);
    EXPECT_TRUE(files_of("ckpt-both") == files_of("ckpt-without")) << "other weights";

    const std::vector<Json> one = evaluations("one");
    const std::vector<Json> both = evaluations("both");
    ASSERT_EQ(one.size(), 2U);
    ASSERT_EQ(both.size(), 2U);
    for (std::size_t i = 0; i < both.size(); ++i) {
      EXPECT_FALSE(one[i].contains("valid_loss/corpus"));
      EXPECT_EQ(one[i].at("valid_perplexity"), std::exp(one[i].at("valid_loss").get<double>()));
      EXPECT_EQ(both[i].at("valid_loss/corpus"), one[i].at("valid_loss"));
      EXPECT_EQ(both[i].at("valid_perplexity/corpus"), one[i].at("valid_perplexity"));
      EXPECT_TRUE(both[i].contains("valid_loss/numbers"));
      EXPECT_TRUE(both[i].contains("valid_perplexity/numbers"));
    }
    EXPECT_NE(text.find("\n  numbers  valid loss "), std::string::npos) << text;
    for (const char* folder : {"without", "one", "both"}) {
      std::filesystem::remove_all(at(folder));
      std::filesystem::remove_all(at(fmt::format("ckpt-{}", folder)));
    }
  }
}

TEST_F(EvalSources, PartsOfASplitAreSourcesToo) {
  const Json both = evaluated("--data.split=50,50,0",
                              {"--data.valid=[]", "--data.train=[\"corpus\",\"numbers\"]"});
  ASSERT_EQ(both.at("sources").size(), 2U);
  EXPECT_EQ(both.at("sources")[1].at("prefix"), "numbers");
}

TEST_F(EvalSources, OneThatIsTooShortOrNamedTwiceIsRefusedByName) {
  write_content(at("few.txt"), std::string(100, 'x'));
  ASSERT_EQ(run({"data", "pack", "few.txt", "--tokenizer", "bytes", "--output", "few"}).status, 0);
  expect_train_refused({"--data.valid=[\"corpus\",\"few\"]", "--train.eval_interval=2"},
                       {"evaluates 32 sequences of each source, the validation data of few has 6"});
  expect_refused({"eval", "run.toml", "--data.valid=[\"corpus\",\"few\"]"}, 2,
                 {"the validation data of few has 6 sequences"});
  expect_train_refused({"--data.valid=[\"corpus\",\"corpus\"]"}, {"names a prefix twice"});
  // Of a split it is left out.
  const std::vector<std::string> split = {"--data.valid=[]", "--data.split=50,50,0",
                                          "--data.train=[\"corpus\",\"few\"]"};
  EXPECT_EQ(evaluated(split[1], {split[0], split[2]}).at("sources").size(), 1U);
  std::vector<std::string> options = split;
  options.insert(options.end(), {"--train.eval_interval=2", "--train.eval_steps=2"});
  const Finished done = train(options);
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_NE(done.err.find("note: few is not evaluated"), std::string::npos) << done.err;
}

}  // namespace
}  // namespace orthant::test
