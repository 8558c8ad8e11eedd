// The learning rate against the fixture's float64 curve and against values worked out by hand.
#include "optim/lr_schedule.h"

#include <cmath>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"

namespace orthant {
namespace {

LrConfig config_of(const std::string& decay) {
  return {
      .lr = 1.0, .min_lr = 0.2, .warmup_steps = 10, .steps = 110, .decay_steps = 0, .decay = decay};
}

std::string message_of(const LrConfig& config) {
  try {
    check_lr(config);
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kUser);
    return error.what();
  }
  return "";
}

TEST(LrSchedule, CosineFollowsTheFixture) {
  const std::string path = ORTHANT_SOURCE_DIR "/../shared/fixtures/gpt2-tiny/expected.json";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not on this machine";
  const Json expected = Json::parse(read_text_file(path));
  LrConfig config;
  config.lr = expected.at("max_lr");
  config.min_lr = expected.at("min_lr");
  config.warmup_steps = expected.at("warmup_steps");
  config.steps = expected.at("total_steps");
  std::int64_t step = 0;
  for (const double lr : expected.at("lr")) {
    ++step;
    EXPECT_LE(std::abs(lr_at(config, step) / lr - 1), 1e-15) << "step " << step;
  }
  EXPECT_EQ(step, 20);
}

TEST(LrSchedule, CosineGoesFromZeroOverTheTopToTheMinimum) {
  const LrConfig config = config_of("cosine");
  EXPECT_DOUBLE_EQ(lr_at(config, 1), 0.1);
  EXPECT_DOUBLE_EQ(lr_at(config, 5), 0.5);
  EXPECT_DOUBLE_EQ(lr_at(config, 10), 1.0);
  EXPECT_DOUBLE_EQ(lr_at(config, 60), 0.6);  // half way
  EXPECT_DOUBLE_EQ(lr_at(config, 110), 0.2);
  EXPECT_DOUBLE_EQ(lr_at(config, 1000), 0.2);
}

TEST(LrSchedule, LinearFallsByTheSameAmountEachStep) {
  const LrConfig config = config_of("linear");
  EXPECT_DOUBLE_EQ(lr_at(config, 11), 1.0 - 0.008);
  EXPECT_DOUBLE_EQ(lr_at(config, 35), 0.8);
  EXPECT_DOUBLE_EQ(lr_at(config, 85), 0.4);
  EXPECT_DOUBLE_EQ(lr_at(config, 110), 0.2);
}

TEST(LrSchedule, ConstantStaysAtTheTop) {
  const LrConfig config = config_of("constant");
  EXPECT_DOUBLE_EQ(lr_at(config, 2), 0.2);
  EXPECT_DOUBLE_EQ(lr_at(config, 11), 1.0);
  EXPECT_DOUBLE_EQ(lr_at(config, 110), 1.0);
  EXPECT_DOUBLE_EQ(lr_at(config, 500), 1.0);
}

TEST(LrSchedule, WsdIsStableUntilTheLastPart) {
  LrConfig config = config_of("wsd");
  config.decay_steps = 40;
  EXPECT_DOUBLE_EQ(lr_at(config, 11), 1.0);
  EXPECT_DOUBLE_EQ(lr_at(config, 70), 1.0);
  EXPECT_DOUBLE_EQ(lr_at(config, 71), 0.98);
  EXPECT_DOUBLE_EQ(lr_at(config, 90), 0.6);
  EXPECT_DOUBLE_EQ(lr_at(config, 110), 0.2);
  config.decay_steps = 0;  // a tenth: 11 steps
  EXPECT_DOUBLE_EQ(lr_at(config, 99), 1.0);
  EXPECT_DOUBLE_EQ(lr_at(config, 100), 1.0 - 0.8 / 11);
}

// Megatron-LM's formulas, from x consumed steps: warm-up x/W, then lr = min + coeff * (max - min).
double megatrons(const LrConfig& c, std::int64_t step) {
  const auto x = static_cast<double>(step);
  const auto W = static_cast<double>(c.warmup_steps);
  const auto D = static_cast<double>(c.steps);
  const auto Z = static_cast<double>(c.decay_steps);
  if (x <= W) return c.lr * x / W;
  if (c.decay == "constant") return c.lr;
  if (x > D) return c.min_lr;
  double coeff = 1;
  const double r = (x - W) / (D - W);
  if (c.decay == "linear") coeff = 1 - r;
  if (c.decay == "cosine") coeff = 0.5 * (std::cos(3.14159265358979323846 * r) + 1);
  if (c.decay == "wsd" && x > D - Z) coeff = 1 - (x - (D - Z)) / Z;
  return c.min_lr + coeff * (c.lr - c.min_lr);
}

TEST(LrSchedule, EveryDecayHasMegatronsValuesAtTwentyPoints) {
  for (const std::string decay : {"cosine", "linear", "constant", "wsd"}) {
    for (const std::int64_t warmup : {0, 300}) {
      LrConfig config{.lr = 6e-4,
                      .min_lr = 6e-5,
                      .warmup_steps = warmup,
                      .steps = 9500,
                      .decay_steps = decay == "wsd" ? 2000 : 0,
                      .decay = decay};
      check_lr(config);
      for (std::int64_t point = 0; point < 20; ++point) {
        const std::int64_t step = point == 0 ? 1 : point * 523;  // the last beyond the end
        EXPECT_NEAR(lr_at(config, step) / megatrons(config, step), 1, 1e-12)
            << decay << " after " << warmup << " at " << step;
      }
    }
  }
}

TEST(LrSchedule, WithoutWarmUpTheFirstStepHasAlreadyDecayed) {
  LrConfig config = config_of("linear");
  config.warmup_steps = 0;
  config.steps = 4;
  EXPECT_DOUBLE_EQ(lr_at(config, 1), 0.8);
  EXPECT_DOUBLE_EQ(lr_at(config, 4), 0.2);
}

TEST(LrSchedule, ARunShorterThanItsWarmUpOnlyWarmsUp) {
  for (const std::string decay : {"cosine", "linear", "constant", "wsd"}) {
    LrConfig config = config_of(decay);
    config.steps = 5;
    EXPECT_EQ(message_of(config), "");
    EXPECT_DOUBLE_EQ(lr_at(config, 5), 0.5) << decay;
  }
}

TEST(LrSchedule, RefusesWhatItCannotFollow) {
  LrConfig config = config_of("cosin");
  EXPECT_NE(message_of(config).find("did you mean 'cosine'?"), std::string::npos);
  config = config_of("cosine");
  config.min_lr = 2;
  EXPECT_NE(message_of(config).find("optimizer.min_lr=2 must lie between"), std::string::npos);
  config = config_of("cosine");
  config.lr = std::nan("");
  EXPECT_NE(message_of(config).find("optimizer.lr=nan"), std::string::npos);
  config = config_of("wsd");
  config.decay_steps = 101;
  EXPECT_NE(message_of(config).find("use at most 100"), std::string::npos);
  config.decay_steps = -1;
  EXPECT_NE(message_of(config).find("optimizer.decay_steps=-1"), std::string::npos);
  config = config_of("cosine");
  config.warmup_steps = -1;
  EXPECT_NE(message_of(config).find("optimizer.warmup_steps=-1"), std::string::npos);
  EXPECT_EQ(message_of(config_of("wsd")), "");
}

}  // namespace
}  // namespace orthant
