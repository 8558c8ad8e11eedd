// Sequences of several documents: what a model computes for each of them is what it computes for
// that document alone.
#include <numeric>

#include <gtest/gtest.h>

#include "tests/support/small_training.h"

namespace orthant::test {
namespace {

// A rank alone with the memory that it needs.
class OneRank {
 public:
  OneRank(const RankConfig& config, const std::string& ops)
      : world_(1, 60),
        device_(make_device(ops, 0)),
        rank_(config,
              {.device = *device_,
               .ops = ops,
               .join_world =
                   [this](const CommParts& parts) {
                     return world_.join(0, parts);
                   }},
              dry_run(config, 0, 1).memory) {
    const InitSource source(5);
    rank_.store().load(source);
  }

  // Of one sequence. Without places it is one document.
  struct Outcome {
    std::vector<float> losses;  // [S]
    std::vector<float> logits;  // [S,V]
    double mean = 0;
    std::int64_t targets = 0;
    std::map<std::string, std::vector<float>> grads;  // of the mean
  };
  Outcome of(const std::vector<std::int32_t>& tokens, const std::vector<std::int32_t>& places) {
    const std::int64_t sample = 0;
    const auto within = std::count_if(places.begin(), places.end(), [](int at) { return at > 0; });
    const HostMicro micro{.tokens = tokens,
                          .sample_ids = std::span(&sample, 1),
                          .places = places,
                          .num_targets = within};
    Outcome outcome;
    const StepResult result = rank_.gradients(1, std::span(&micro, 1), 1);
    outcome.mean = result.loss;
    outcome.targets = result.targets;
    gather(rank_, true, outcome.grads);
    rank_.evaluate(std::span(&micro, 1), 1, [&](int, const LmHead::Saved& saved) {
      outcome.losses = values(saved.loss);
      outcome.logits = values(saved.logits);
    });
    return outcome;
  }

 private:
  std::vector<float> values(const Tensor& tensor) const {
    std::vector<float> result(static_cast<std::size_t>(tensor.count()));
    device_->to_host(std::as_writable_bytes(std::span(result)), tensor);
    return result;
  }
  ThreadWorld world_;
  std::unique_ptr<Device> device_;
  Rank rank_;
};

RankConfig config_of(const std::string& family, std::int64_t S, bool by_document) {
  Case c{.model = small(family), .seq_length = S, .by_document = by_document};
  if (family == "llama") c.model.kv_heads = 2;
  RankConfig config = training_of(c, 1, 1, 1, 1).config;
  config.max_micros = 1;
  return config;
}

std::vector<std::int32_t> places_of(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int32_t> places;
  for (const std::int64_t length : lengths) {
    for (std::int32_t i = 0; i < length; ++i) {
      places.push_back(i);
    }
  }
  return places;
}

std::vector<std::int32_t> some_tokens(std::int64_t count) {
  std::vector<std::int32_t> tokens = random_stream(509);
  tokens.resize(static_cast<std::size_t>(count));
  return tokens;
}

void expect_near(const std::vector<float>& actual, const std::vector<double>& expected,
                 const std::string& name) {
  double norm = 0;
  double error = 0;
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    norm += expected[i] * expected[i];
    error += (actual[i] - expected[i]) * (actual[i] - expected[i]);
  }
  // The gradient of a key's bias is zero but for rounding.
  EXPECT_LE(std::sqrt(error), 1e-5 * std::sqrt(norm) + 1e-7) << name;
}

class Documents : public testing::TestWithParam<const char*> {};

// Lengths in a sequence of S + 1 tokens; the last document begins with the token that is predicted.
TEST_P(Documents, OfASequenceHaveTheLossesAndGradientsOfEachAlone) {
  for (const std::string ops : {"ref", "cpu"}) {
    SCOPED_TRACE(ops);
    const std::vector<std::int64_t> lengths = {7, 1, 12, 20, 1};
    const std::int64_t S = 40;
    const std::vector<std::int32_t> tokens = some_tokens(S + 1);
    OneRank rank(config_of(GetParam(), S, true), ops);
    const OneRank::Outcome packed = rank.of(tokens, places_of(lengths));
    EXPECT_EQ(packed.targets, 6 + 0 + 11 + 19 + 0);

    std::map<std::string, std::vector<double>> grads;
    double sum = 0;
    std::size_t first = 0;
    for (const std::int64_t length : lengths) {
      const auto count = static_cast<std::size_t>(length);
      if (length > 1) {
        OneRank single(config_of(GetParam(), length - 1, false), ops);
        const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(first);
        const OneRank::Outcome alone = single.of({begin, begin + length}, {});
        EXPECT_EQ(alone.targets, length - 1);
        for (std::size_t i = 0; i + 1 < count; ++i) {
          EXPECT_NEAR(packed.losses[first + i], alone.losses[i], 5e-6) << first + i;
          sum += alone.losses[i];
        }
        for (const auto& [name, grad] : alone.grads) {
          std::vector<double>& total = grads[name];
          total.resize(grad.size());
          for (std::size_t i = 0; i < grad.size(); ++i) {
            total[i] += static_cast<double>(grad[i]) * static_cast<double>(length - 1) / 36;
          }
        }
      }
      // The last token of a document predicts nothing.
      if (first + count <= static_cast<std::size_t>(S)) {
        EXPECT_EQ(packed.losses[first + count - 1], 0);
      }
      first += count;
    }
    EXPECT_NEAR(packed.mean, sum / 36, 2e-6);
    for (const auto& [name, grad] : packed.grads) {
      expect_near(grad, grads.at(name), name);
    }
  }
}

TEST_P(Documents, OfASequenceChangeNoBitOfEachOther) {
  const std::vector<std::int64_t> lengths = {95, 110, 196};  // beside the edges of blocks
  const std::int64_t S = 400;
  RankConfig config = config_of(GetParam(), S, true);
  config.model.max_positions = S;
  OneRank rank(config, "cpu");
  std::vector<std::int32_t> tokens = some_tokens(S + 1);
  const OneRank::Outcome before = rank.of(tokens, places_of(lengths));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i < 95 || i >= 205) tokens[i] = (tokens[i] + 7) % 509;
  }
  const OneRank::Outcome after = rank.of(tokens, places_of(lengths));
  const std::size_t V = before.logits.size() / S;
  const auto middle = [V](const std::vector<float>& logits) {
    const auto at = [&](std::size_t row) {
      return logits.begin() + static_cast<std::ptrdiff_t>(row * V);
    };
    return std::vector<float>(at(95), at(205));
  };
  EXPECT_TRUE(middle(before.logits) == middle(after.logits));
  EXPECT_TRUE(before.logits != after.logits);
}

TEST_P(Documents, OneOfThemHasTheBitsOfAWholeSequence) {
  const std::int64_t S = 33;
  const std::vector<std::int32_t> tokens = some_tokens(S + 1);
  OneRank plain(config_of(GetParam(), S, false), "cpu");
  OneRank single(config_of(GetParam(), S, true), "cpu");
  const OneRank::Outcome expected = plain.of(tokens, {});
  const OneRank::Outcome actual = single.of(tokens, places_of({S + 1}));
  EXPECT_EQ(actual.targets, S);
  EXPECT_EQ(actual.mean, expected.mean);
  EXPECT_EQ(actual.losses, expected.losses);
  EXPECT_EQ(actual.grads, expected.grads);
}

TEST_P(Documents, OfOneTokenEachHaveNoLossAndNoGradient) {
  const std::int64_t S = 5;
  OneRank rank(config_of(GetParam(), S, true), "cpu");
  const OneRank::Outcome outcome = rank.of(some_tokens(S + 1), places_of({1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(outcome.targets, 0);
  EXPECT_EQ(outcome.mean, 0);
  for (const auto& [name, grad] : outcome.grads) {
    EXPECT_TRUE(std::all_of(grad.begin(), grad.end(), [](float x) { return x == 0; })) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Family, Documents, testing::Values("gpt", "bloom", "llama"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace orthant::test
