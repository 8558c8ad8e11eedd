// Generation with the cache computes what the whole forward pass does, in the memory planned.
#include "infer/generator.h"

#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include "infer/choices.h"
#include "infer/write_text.h"
#include "tests/support/close.h"
#include "tests/support/fixture.h"

namespace orthant::test {
namespace {

// A generator on this thread.
struct Bed {
  explicit Bed(const GeneratorConfig& config, const ParamSource& source,
               const std::string& ops = "cpu", int num_threads = 1)
      : plan(plan_generation(config)),
        device(make_host_device()),
        world(1, 60),
        generator(config,
                  Backend{.device = *device,
                          .ops = ops,
                          .join_world = [this](const CommParts& p) { return world.join(0, p); },
                          .num_threads = num_threads},
                  plan) {
    generator.store().load(source);
  }

  MemoryPlan plan;
  std::unique_ptr<Device> device;
  ThreadWorld world;
  Generator generator;
};

std::vector<double> doubles(std::span<const float> values) {
  return {values.begin(), values.end()};
}

// Logits [S,V] of a whole forward pass of training's rank.
std::vector<double> whole_logits(const Fixture& fixture, const ParamSource& source,
                                 std::span<const std::int32_t> tokens, DType compute) {
  RankConfig config;
  config.model = fixture.model;
  config.seq_length = static_cast<std::int64_t>(tokens.size());
  config.compute = compute;
  config.purpose = Purpose::kInfer;
  const DryRun plan = dry_run(config, 0, 1);
  const auto device = make_host_device();
  ThreadWorld world(1, 60);
  const Backend backend{.device = *device,
                        .ops = "cpu",
                        .join_world = [&](const CommParts& p) { return world.join(0, p); },
                        .num_threads = 1};
  Rank rank(config, backend, plan.memory);
  rank.store().load(source);
  std::vector<std::int32_t> row(tokens.begin(), tokens.end());
  row.push_back(0);
  const std::vector<std::int64_t> ids = {0};
  const HostMicro micro{.tokens = row, .sample_ids = ids};
  std::vector<double> logits;
  rank.evaluate(std::span(&micro, 1), 1, [&](int, const LmHead::Saved& saved) {
    const std::int64_t width = saved.logits.shape[1];
    for (std::int64_t t = 0; t < config.seq_length; ++t) {
      for (std::int64_t v = 0; v < fixture.model.vocab; ++v) {
        const std::int64_t at = t * width + v;
        logits.push_back(compute == DType::kF32
                             ? saved.logits.ptr<float>()[at]
                             : static_cast<float>(saved.logits.ptr<BFloat16>()[at]));
      }
    }
  });
  return logits;
}

class CachedLogits : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!has_fixture(GetParam())) GTEST_SKIP() << "no fixtures at " << fixture_folder(GetParam());
  }

  // Prompts of several lengths, then one token at a time, against one pass over all tokens.
  static void compare(DType compute, double tol) {
    const Fixture fixture(GetParam());
    const HfSource source(fixture.model, fixture.folder);
    constexpr std::int64_t kTokens = 48;
    const auto tokens = std::span(fixture.tokens).first(kTokens);
    const std::vector<double> whole = whole_logits(fixture, source, tokens, compute);
    const std::int64_t V = fixture.model.vocab;
    for (const std::int64_t prompt : {1, 7, 32, 48}) {
      Bed bed(generator_config(fixture.model, compute, prompt, kTokens - prompt + 1), source);
      for (std::int64_t at = 0; at < kTokens;) {
        const std::int64_t count = at == 0 ? prompt : 1;
        const auto logits = bed.generator.forward(
            tokens.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count)));
        at += count;
        const auto expected = std::span(whole).subspan(static_cast<std::size_t>((at - 1) * V),
                                                       static_cast<std::size_t>(V));
        expect_close(doubles(logits), expected, {V}, tol,
                     fmt::format("prompt of {}, logits after {} tokens", prompt, at));
        if (testing::Test::HasFailure()) return;
      }
      EXPECT_EQ(bed.generator.length(), kTokens);
      EXPECT_EQ(bed.generator.memory(), bed.plan);
    }
  }
};

TEST_P(CachedLogits, EqualTheWholeForward) {
  compare(DType::kF32, 1e-5);
}
TEST_P(CachedLogits, EqualTheWholeForwardInBf16) {
  compare(DType::kBF16, 0.03);
}

// Choices that share a context and one that does not: each has the sum of its tokens' losses in a
// whole forward pass, with the sign turned.
TEST_P(CachedLogits, ScoreChoicesAsTheWholeForwardDoes) {
  const Fixture fixture(GetParam());
  const HfSource source(fixture.model, fixture.folder);
  const auto V = static_cast<std::size_t>(fixture.model.vocab);
  TaskTokens task;
  for (const auto& [begin, first, count] :
       {std::array<std::size_t, 3>{0, 5, 9}, {0, 5, 6}, {20, 7, 12}, {0, 5, 9}}) {
    ChoiceTokens one{.tokens = {}, .first = first, .bytes = 1};
    const auto tokens = std::span(fixture.tokens).subspan(begin, count);
    one.tokens.assign(tokens.begin(), tokens.end());
    one.tokens.back() = static_cast<std::int32_t>(task.size());  // the choices differ
    task.push_back(std::move(one));
  }
  Bed bed(choices_config(fixture.model, DType::kF32, {task}), source);
  const std::vector<double> scores = score_choices(bed.generator, task);
  ASSERT_EQ(scores.size(), task.size());
  for (std::size_t i = 0; i < task.size(); ++i) {
    const std::vector<std::int32_t>& tokens = task[i].tokens;
    const std::vector<double> whole = whole_logits(fixture, source, tokens, DType::kF32);
    double expected = 0;
    for (std::size_t t = task[i].first; t < tokens.size(); ++t) {
      const auto logits = std::span(whole).subspan((t - 1) * V, V);
      double sum = 0;
      for (const double logit : logits) {
        sum += std::exp(logit);
      }
      expected += logits[static_cast<std::size_t>(tokens[t])] - std::log(sum);
    }
    EXPECT_NEAR(scores[i], expected, 1e-4) << "choice " << i;
  }
  EXPECT_EQ(bed.generator.memory(), bed.plan);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, CachedLogits,
                         testing::Values("gpt2-tiny", "bloom-tiny", "llama-tiny"),
                         [](const auto& info) {
                           return info.param.substr(0, info.param.find('-'));
                         });

ModelConfig small_model(const std::string& family) {
  ModelConfig model = family_defaults(family);
  model.layers = 2;
  model.hidden = 32;
  model.heads = 4;
  model.vocab = 99;
  model.max_positions = 16;
  model.init_std = 0.3;
  model.kv_heads = family == "llama" ? 2 : 0;
  complete(model);
  return model;
}

std::vector<std::int32_t> written(Bed& bed, const SamplerConfig& config,
                                  const TextRequest& request) {
  bed.generator.restart();
  Sampler sampler(config);
  std::vector<std::int32_t> tokens;
  write_texts(bed.generator, sampler, std::span(&request, 1),
              [&](std::size_t, std::int32_t t) { tokens.push_back(t); });
  return tokens;
}

TEST(WriteText, IsTheSameTextForTheSameSeed) {
  const InitSource source(3);
  const TextRequest request{.prompt = {5, 17, 44}, .num_tokens = 12, .ends = {}, .num_ids = 99};
  for (const char* family : {"gpt", "bloom", "llama"}) {
    const GeneratorConfig config = generator_config(small_model(family), DType::kF32, 3, 12);
    Bed bed(config, source);
    Bed threads(config, source, "cpu", 3);
    for (const double temperature : {0.0, 1.5}) {
      const SamplerConfig sampler{.temperature = temperature, .seed = 9};
      const auto text = written(bed, sampler, request);
      EXPECT_EQ(text.size(), 12U) << family;
      EXPECT_EQ(written(bed, sampler, request), text) << family;
      EXPECT_EQ(written(threads, sampler, request), text) << family;
    }
    EXPECT_NE(written(bed, {.temperature = 1.5, .seed = 9}, request),
              written(bed, {.temperature = 1.5, .seed = 10}, request))
        << family;
    EXPECT_EQ(bed.generator.memory(), bed.plan) << family;
  }
}

TEST(WriteText, GreedyTakesTheLargestLogitOfEachStep) {
  const InitSource source(4);
  const GeneratorConfig config = generator_config(small_model("llama"), DType::kF32, 2, 6);
  Bed bed(config, source, "ref");
  const TextRequest request{.prompt = {1, 2}, .num_tokens = 6, .ends = {}, .num_ids = 99};
  const auto text = written(bed, {.temperature = 0}, request);
  bed.generator.restart();
  std::vector<std::int32_t> next = request.prompt;
  for (const std::int32_t token : text) {
    const auto logits = bed.generator.forward(next);
    EXPECT_EQ(std::max_element(logits.begin(), logits.end()) - logits.begin(), token);
    next = {token};
  }
}

TEST(WriteText, StopsBeforeAnEndToken) {
  const InitSource source(3);
  const GeneratorConfig config = generator_config(small_model("bloom"), DType::kF32, 2, 10);
  Bed bed(config, source);
  TextRequest request{.prompt = {8, 9}, .num_tokens = 10, .ends = {}, .num_ids = 99};
  const SamplerConfig sampler{.temperature = 2, .seed = 1};
  const auto whole = written(bed, sampler, request);
  request.ends = {98, whole[4]};
  const auto first = std::find_if(whole.begin(), whole.end(), [&](std::int32_t token) {
    return token == request.ends[0] || token == request.ends[1];
  });
  EXPECT_EQ(written(bed, sampler, request), std::vector<std::int32_t>(whole.begin(), first));
}

TEST(WriteText, ChoosesOnlyIdsThatTheTokenizerHas) {
  const InitSource source(3);
  Bed bed(generator_config(small_model("bloom"), DType::kF32, 1, 40), source);
  const TextRequest request{.prompt = {8}, .num_tokens = 40, .ends = {}, .num_ids = 10};
  for (const std::int32_t token : written(bed, {.temperature = 5}, request)) {
    EXPECT_LT(token, 10);
  }
}

TEST(GeneratorConfig, LearnedPositionsEndTheText) {
  const ModelConfig model = small_model("gpt");
  EXPECT_EQ(tokens_that_fit(generator_config(model, DType::kF32, 10, 5), 10), 5);
  EXPECT_EQ(tokens_that_fit(generator_config(model, DType::kF32, 10, 50), 10), 7);
  EXPECT_EQ(tokens_that_fit(generator_config(model, DType::kF32, 16, 50), 16), 1);
  const InitSource source(3);
  Bed bed(generator_config(model, DType::kF32, 16, 50), source);
  const TextRequest request{
      .prompt = std::vector<std::int32_t>(16, 1), .num_tokens = 1, .ends = {}, .num_ids = 99};
  EXPECT_EQ(written(bed, {}, request).size(), 1U);
}

TEST(GeneratorConfig, RefusesAPromptBeyondTheLearnedPositions) {
  try {
    generator_config(small_model("gpt"), DType::kF32, 17, 1);
    FAIL() << "was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kUser);
    const std::string message = error.what();
    EXPECT_NE(message.find("17 tokens"), std::string::npos) << message;
    EXPECT_NE(message.find("model.max_positions=16"), std::string::npos) << message;
  }
}

TEST(GeneratorConfig, RefusesTextsOfNoOrTooManyTokens) {
  for (const std::int64_t tokens : {std::int64_t{0}, std::int64_t{-5}, std::int64_t{1} << 40}) {
    EXPECT_THROW(generator_config(small_model("llama"), DType::kF32, 1, tokens), Error) << tokens;
  }
}

TEST(GeneratorConfig, OtherPositionsGoOnPastMaxPositions) {
  for (const char* family : {"bloom", "llama"}) {
    const GeneratorConfig config = generator_config(small_model(family), DType::kF32, 20, 30);
    EXPECT_EQ(tokens_that_fit(config, 20), 30) << family;
    const InitSource source(3);
    Bed bed(config, source);
    const TextRequest request{
        .prompt = std::vector<std::int32_t>(20, 1), .num_tokens = 30, .ends = {}, .num_ids = 99};
    EXPECT_EQ(written(bed, {}, request).size(), 30U) << family;
  }
}

}  // namespace
}  // namespace orthant::test
