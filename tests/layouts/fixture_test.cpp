// Training from Hugging Face weights follows float64 curves on every layout.
#include "tests/support/fixture.h"

#include <cmath>
#include <functional>

#include <gtest/gtest.h>

namespace orthant::test {
namespace {

struct Layout {
  std::string fixture;
  int tp;
  int pp;
  int dp;
  std::int64_t micro_batch;
  std::string schedule = "1f1b";
  int virtual_stages = 1;
  bool sequence_parallel = false;
};

class Fixtures : public testing::TestWithParam<Layout> {};

TEST_P(Fixtures, FollowTheFloat64Curve) {
  const Layout& layout = GetParam();
  if (!has_fixture(layout.fixture))
    GTEST_SKIP() << "no fixtures at " << fixture_folder(layout.fixture);
  const Fixture fixture(layout.fixture);
  const HfSource source(fixture.model, fixture.folder);
  Training training =
      fixture_training(fixture, layout.tp, layout.pp, layout.dp, layout.micro_batch);
  training.config.layout.schedule = layout.schedule;
  training.config.layout.virtual_stages = layout.virtual_stages;
  training.config.layout.sequence_parallel = layout.sequence_parallel;
  const Curve curve = train(training, source, fixture.tokens);
  EXPECT_EQ(curve.memory_fault, "");
  EXPECT_EQ(curve.ledger_fault, "");
  const bool one_rank = training.config.layout.ranks == 1;
  const double loss_bound = one_rank ? 5e-6 : 1e-5;
  const double norm_bound = one_rank ? 5e-5 : 1e-4;
  for (std::size_t i = 0; i < 20; ++i) {
    const double loss = fixture.expected["loss"][i];
    const double norm = fixture.expected["grad_norm"][i];
    EXPECT_NEAR(curve.loss.at(i), loss, loss_bound) << "step " << i + 1;
    EXPECT_NEAR(curve.norm.at(i) / norm, 1, norm_bound) << "step " << i + 1;
  }
}

// bf16 compute with fp32 master weights and gradients.
TEST(FixturesInBf16, StayNearTheFloat64Curve) {
  for (const std::string name : {"gpt2-tiny", "bloom-tiny", "llama-tiny"}) {
    if (!has_fixture(name)) GTEST_SKIP() << "no fixtures at " << fixture_folder(name);
    const Fixture fixture(name);
    const HfSource source(fixture.model, fixture.folder);
    for (const int ways : {1, 2}) {
      Training training = fixture_training(fixture, ways, ways, ways, 2);
      training.config.compute = DType::kBF16;
      const Curve curve = train(training, source, fixture.tokens);
      EXPECT_EQ(curve.memory_fault, "");
      double sum = 0;
      for (std::size_t i = 0; i < 20; ++i) {
        sum += std::abs(curve.loss[i] - fixture.expected["loss"][i].get<double>());
      }
      EXPECT_LT(sum / 20, 2e-2) << name << " on " << ways * ways * ways << " ranks";
    }
  }
}

class FixturesOnCuda : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (gpus().empty()) GTEST_SKIP() << "no GPU is here";
    if (!has_fixture(GetParam())) GTEST_SKIP() << "no fixtures at " << fixture_folder(GetParam());
  }
  // tp, pp and dp thread ranks that share one GPU.
  Curve curve(const std::array<int, 3>& layout, std::int64_t micro_batch, DType compute,
              const std::function<void(RankConfig&)>& change = {}) const {
    const Fixture fixture(GetParam());
    const HfSource source(fixture.model, fixture.folder);
    Training training = fixture_training(fixture, layout[0], layout[1], layout[2], micro_batch);
    training.ops = "cuda";
    training.config.target = Target::kCuda;
    training.config.compute = compute;
    if (change) change(training.config);
    Curve curve = train(training, source, fixture.tokens);
    EXPECT_EQ(curve.memory_fault, "");
    EXPECT_EQ(curve.ledger_fault, "");
    return curve;
  }
};

TEST_P(FixturesOnCuda, FollowTheFloat64Curve) {
  const Fixture fixture(GetParam());
  struct Case {
    std::array<int, 3> layout;
    std::int64_t micro_batch;
  };
  for (const Case& one :
       {Case{{1, 1, 1}, 1}, Case{{1, 1, 1}, 2}, Case{{1, 1, 1}, 4}, Case{{2, 1, 1}, 2},
        Case{{1, 2, 1}, 2}, Case{{1, 4, 1}, 2}, Case{{1, 1, 2}, 2}, Case{{2, 2, 2}, 2}}) {
    const auto& [tp, pp, dp] = one.layout;
    const Curve run = curve(one.layout, one.micro_batch, DType::kF32);
    const bool one_rank = tp * pp * dp == 1;
    for (std::size_t i = 0; i < 20; ++i) {
      const double norm = fixture.expected["grad_norm"][i];
      EXPECT_NEAR(run.loss.at(i), fixture.expected["loss"][i].get<double>(), one_rank ? 5e-6 : 1e-5)
          << "tp " << tp << ", pp " << pp << ", dp " << dp << ", step " << i + 1;
      EXPECT_NEAR(run.norm.at(i) / norm, 1, one_rank ? 5e-5 : 1e-4)
          << "tp " << tp << ", pp " << pp << ", dp " << dp << ", step " << i + 1;
    }
  }
}

TEST_P(FixturesOnCuda, InBf16StayNearTheFloat64Curve) {
  const Fixture fixture(GetParam());
  for (const Target target : {Target::kCuda, Target::kCudaDeterministic}) {
    for (const int ways : {1, 2}) {
      const Curve run = curve({ways, ways, ways}, 2, DType::kBF16,
                              [=](RankConfig& config) { config.target = target; });
      double sum = 0;
      for (std::size_t i = 0; i < 20; ++i) {
        sum += std::abs(run.loss[i] - fixture.expected["loss"][i].get<double>());
      }
      EXPECT_LT(sum / 20, 2e-2) << ways * ways * ways << " ranks";
    }
  }
}

TEST_P(FixturesOnCuda, DepthChangesNoBit) {
  const auto exactly = [](RankConfig& config) {
    config.target = Target::kCudaDeterministic;
  };
  const Curve one = curve({1, 1, 1}, 2, DType::kF32, exactly);
  const Curve deep = curve({1, 4, 1}, 2, DType::kF32, exactly);
  EXPECT_EQ(deep.loss, one.loss);
  EXPECT_EQ(deep.norm, one.norm);
  EXPECT_EQ(deep.weights, one.weights);
}

TEST_P(FixturesOnCuda, OffloadChangesNoBit) {
  struct Case {
    DType compute;
    DType master;
    DType state;  // of moments and gradients
    std::array<int, 3> layout;
  };
  for (const Case& one : {Case{DType::kF32, DType::kF32, DType::kF32, {1, 2, 1}},
                          Case{DType::kBF16, DType::kF32, DType::kF32, {1, 1, 1}},
                          Case{DType::kBF16, DType::kF32, DType::kBF16, {2, 1, 2}},
                          Case{DType::kBF16, DType::kI16, DType::kF32, {1, 1, 1}},
                          Case{DType::kBF16, DType::kI16, DType::kBF16, {1, 1, 2}}}) {
    SCOPED_TRACE(fmt::format("{}, masters in {}, moments and gradients in {}", name_of(one.compute),
                             name_of(one.master), name_of(one.state)));
    const auto run = [&](const char* offload, double fraction) {
      return curve(one.layout, 2, one.compute, [&](RankConfig& config) {
        config.target = Target::kCudaDeterministic;
        config.layout.offload = offload;
        config.layout.offload_fraction = fraction;
        config.master = one.master;
        config.moments = one.state;
        config.grads = one.state;
      });
    };
    const Curve none = run("none", 1);
    for (const auto& [offload, fraction] :
         {std::pair("optimizer", 1.0), {"optimizer", 0.5}, {"stash", 1.0}}) {
      const Curve other = run(offload, fraction);
      EXPECT_EQ(other.loss, none.loss) << offload << " " << fraction;
      EXPECT_EQ(other.norm, none.norm) << offload << " " << fraction;
      EXPECT_EQ(other.weights, none.weights) << offload << " " << fraction;
    }
  }
}

TEST_P(FixturesOnCuda, StateInBf16StaysNearTheFloat64Curve) {
  const Fixture fixture(GetParam());
  const Curve run = curve({1, 1, 1}, 2, DType::kF32, [](RankConfig& config) {
    config.moments = DType::kBF16;
    config.grads = DType::kBF16;
  });
  double sum = 0;
  for (std::size_t i = 0; i < 20; ++i) {
    sum += std::abs(run.loss[i] - fixture.expected["loss"][i].get<double>());
  }
  EXPECT_LT(sum / 20, 2e-2);
}

INSTANTIATE_TEST_SUITE_P(OneGpu, FixturesOnCuda,
                         testing::Values("gpt2-tiny", "bloom-tiny", "llama-tiny"));

std::vector<Layout> layouts() {
  std::vector<Layout> all;
  for (const char* fixture : {"gpt2-tiny", "bloom-tiny", "llama-tiny"}) {
    for (const std::int64_t b : {1, 2, 4}) {
      all.push_back({fixture, 1, 1, 1, b});
    }
    for (const auto& [tp, pp, dp] :
         {std::array{2, 1, 1}, {1, 2, 1}, {1, 4, 1}, {1, 1, 2}, {2, 2, 2}, {4, 2, 1}}) {
      all.push_back({fixture, tp, pp, dp, 2});
    }
    all.push_back({fixture, 1, 2, 1, 1, "interleaved", 2});
    all.push_back({fixture, 2, 2, 2, 2, "interleaved", 2});
    all.push_back({fixture, 1, 3, 1, 2, "zero_bubble"});
    all.push_back({fixture, 2, 2, 1, 1, "zero_bubble_v"});
    all.push_back({fixture, 1, 2, 2, 2, "zero_bubble_v"});
    all.push_back({fixture, 8, 1, 1, 2});
    for (const auto& [tp, pp, dp] : {std::array{2, 1, 1}, {4, 1, 1}, {2, 2, 2}, {8, 1, 1}}) {
      all.push_back({fixture, tp, pp, dp, 2, "1f1b", 1, true});
    }
    all.push_back({fixture, 2, 2, 1, 2, "zero_bubble_v", 2, true});
  }
  return all;
}

std::string name_of(const testing::TestParamInfo<Layout>& info) {
  std::string name = info.param.fixture.substr(0, info.param.fixture.find('-'));
  name = fmt::format("{}_tp{}{}_pp{}_dp{}_b{}", name, info.param.tp,
                     info.param.sequence_parallel ? "sp" : "", info.param.pp, info.param.dp,
                     info.param.micro_batch);
  if (info.param.schedule != "1f1b") name += "_" + info.param.schedule;
  return name;
}

INSTANTIATE_TEST_SUITE_P(Layouts, Fixtures, testing::ValuesIn(layouts()), name_of);

}  // namespace
}  // namespace orthant::test
