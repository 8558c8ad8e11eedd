// Generation on several ranks and of several texts at once: the logits and texts of one rank and
// one text.
#include <array>
#include <mutex>

#include <gtest/gtest.h>

#include "comm/backends.h"
#include "infer/write_text.h"
#include "tests/support/fixture.h"

namespace orthant::test {
namespace {

ModelConfig small_model(const std::string& family) {
  ModelConfig model = family_defaults(family);
  model.layers = 3;
  model.hidden = 32;
  model.heads = 4;
  model.vocab = 101;
  model.max_positions = 40;
  model.init_std = 0.3;
  model.kv_heads = family == "llama" ? 2 : 0;
  if (family == "llama") model.ffn = 48;
  complete(model);
  return model;
}

// Runs `body` on every rank; each one's memory is as planned.
void on_ranks(const GeneratorConfig& config,
              const std::function<void(Generator& generator, int rank)>& body) {
  const InitSource source(3);
  ThreadWorld world(config.num_ranks(), 60);
  run_rank_threads(world, [&](int r) {
    const MemoryPlan plan = plan_generation(config, r);
    const auto device = make_host_device();
    Generator generator(config,
                        Backend{.device = *device,
                                .ops = "cpu",
                                .join_world = [&](const CommParts& p) { return world.join(r, p); },
                                .num_threads = 1},
                        plan);
    generator.store().load(source);
    body(generator, r);
    EXPECT_EQ(generator.memory(), plan) << "rank " << r;
  });
}

using Texts = std::vector<std::vector<std::int32_t>>;

// What rank 0 writes; all ranks write the same.
Texts texts_of(GeneratorConfig config, const std::vector<TextRequest>& requests) {
  config.max_forward = static_cast<std::int64_t>(shortest_prompt(requests));
  std::mutex mutex;
  std::vector<Texts> all(static_cast<std::size_t>(config.num_ranks()));
  on_ranks(config, [&](Generator& generator, int rank) {
    Sampler sampler({.temperature = 1.0, .seed = 5});
    Texts texts(requests.size());
    write_texts(generator, sampler, requests,
                [&](std::size_t i, std::int32_t token) { texts[i].push_back(token); });
    const std::lock_guard lock(mutex);
    all[static_cast<std::size_t>(rank)] = texts;
  });
  for (const Texts& texts : all) {
    EXPECT_EQ(texts, all.front());
  }
  return all.front();
}

TEST(GeneratorRanks, LogitsAreThoseOfOneRank) {
  for (const char* family : {"gpt", "bloom", "llama"}) {
    GeneratorConfig config = generator_config(small_model(family), DType::kF32, 7, 6);
    std::vector<float> expected;
    const std::vector<std::int32_t> prompt = {5, 17, 44, 3, 100, 0, 8};
    const auto logits_of = [&](Generator& generator) {
      std::vector<float> all;
      for (const auto& tokens : {prompt, {9}, {11}}) {
        const auto logits = generator.forward(tokens);
        all.insert(all.end(), logits.begin(), logits.end());
      }
      return all;
    };
    on_ranks(config, [&](Generator& generator, int) { expected = logits_of(generator); });
    for (const auto& [tp, pp] : {std::array{2, 1}, {4, 1}, {1, 2}, {1, 3}, {2, 2}, {4, 3}}) {
      SCOPED_TRACE(fmt::format("{} tp {} pp {}", family, tp, pp));
      config.tp = tp;
      config.pp = pp;
      on_ranks(config, [&](Generator& generator, int rank) {
        const std::vector<float> found = logits_of(generator);
        ASSERT_EQ(found.size(), expected.size());
        for (std::size_t i = 0; i < found.size(); ++i) {
          ASSERT_NEAR(found[i], expected[i], 1e-4) << "rank " << rank << " logit " << i;
        }
      });
    }
  }
}

TEST(GeneratorRanks, TextsOfABatchAreThoseWrittenAlone) {
  const std::vector<TextRequest> requests = {
      {.prompt = {5, 17, 44}, .num_tokens = 9, .ends = {7}, .num_ids = 101, .sequence = 0},
      {.prompt = {1}, .num_tokens = 12, .ends = {}, .num_ids = 101, .sequence = 1},
      {.prompt = {9, 9, 9, 9, 2, 6}, .num_tokens = 4, .ends = {}, .num_ids = 50, .sequence = 2},
  };
  for (const char* family : {"gpt", "bloom", "llama"}) {
    SCOPED_TRACE(family);
    GeneratorConfig config = generator_config(small_model(family), DType::kF32, 6, 12);
    Texts alone;
    for (const TextRequest& request : requests) {
      alone.push_back(texts_of(config, {request}).front());
    }
    EXPECT_EQ(alone[1].size(), 12U);
    EXPECT_EQ(alone[2].size(), 4U);
    config.batch = 3;
    EXPECT_EQ(texts_of(config, requests), alone);
    config.tp = 2;
    config.pp = 2;
    EXPECT_EQ(texts_of(config, requests), alone);
  }
}

TEST(GeneratorRanks, LayoutsThatDoNotFitAreRefused) {
  GeneratorConfig config = generator_config(small_model("llama"), DType::kF32, 2, 2);
  const auto refusal = [&](int tp, int pp) -> std::string {
    config.tp = tp;
    config.pp = pp;
    try {
      check_layout(config);
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::kUser);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(4, 3), "");
  EXPECT_NE(refusal(3, 1).find("--tp=3"), std::string::npos);
  EXPECT_NE(refusal(1, 4).find("--pp=4"), std::string::npos);
  EXPECT_NE(refusal(0, 1).find("--tp=0"), std::string::npos);
}

}  // namespace
}  // namespace orthant::test
