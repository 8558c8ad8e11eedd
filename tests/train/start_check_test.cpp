// The check of a run's start: what begins as it should passes and stays as it is, and a fault that
// is put into the weights is found and named.
#include "train/start_check.h"

#include <cmath>
#include <mutex>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "comm/backends.h"
#include "tests/support/small_training.h"
#include "train/plan_memory.h"

namespace orthant::test {
namespace {

using Options = std::vector<std::string>;

constexpr const char* kRun = R"([model]
layers = 4
hidden = 48
heads = 4
vocab = 509
max_positions = 64

[train]
steps = 4
global_batch = 8
seq_length = 16
seed = 5
)";

// Initial values that are wrong in some parameters.
class WrongSource final : public ParamSource {
 public:
  using Change =
      std::function<void(const ParamSpec& param, std::int64_t first, std::span<float> values)>;
  explicit WrongSource(Change change) : change_(std::move(change)) {}
  void read(const ParamSpec& param, StateKind state, std::int64_t first,
            std::span<float> into) const override {
    initial_.read(param, state, first, into);
    if (state == StateKind::kWeight) change_(param, first, into);
  }

 private:
  InitSource initial_{5};
  Change change_;
};

void multiply(std::span<float> values, double factor) {
  for (float& value : values) {
    value = static_cast<float>(value * factor);
  }
}

RunConfig config_of(const std::string& family, Options options) {
  options.push_back("--model.family=" + family);
  return parse_run_config(kRun, "run.toml", options);
}

using SourceOf = std::function<const ParamSource&(int rank)>;

struct Start {
  StartFindings findings;  // of rank 0
  bool all_agree = true;
};

// Threads, each with the weights of its source.
Start examine(const RunConfig& config, const SourceOf& source_of, bool is_fresh = true) {
  const RankConfig rank_of = rank_config(config);
  const RunPlan plan = plan_run(rank_of, 0);
  const auto stream = random_stream(config.model.vocab);
  std::vector<StartFindings> all(static_cast<std::size_t>(config.layout.ranks));
  ThreadWorld world(config.layout.ranks, 60);
  run_rank_threads(world, [&](int r) {
    const auto device = make_host_device();
    const Backend backend{
        .device = *device, .ops = "cpu", .join_world = [&](const CommParts& parts) {
          return world.join(r, parts);
        }};
    Rank rank(rank_of, backend, plan.of(r).whole);
    rank.store().load(source_of(r));
    const StepData data(stream, config.layout, rank.mesh().coord(Axis::kDp), 0,
                        config.train.global_batch, config.train.seq_length);
    all[static_cast<std::size_t>(r)] = examine_start(
        rank, {.config = config, .is_fresh = is_fresh, .step = 1, .micros = data.micros});
  });
  Start start{.findings = all.front()};
  for (const StartFindings& findings : all) {
    start.all_agree = start.all_agree && findings.faults == start.findings.faults;
  }
  return start;
}

Start examine(const RunConfig& config, const WrongSource::Change& change) {
  const WrongSource source(change);
  return examine(config, [&source](int) -> const ParamSource& { return source; });
}

// Exactly one fault, with each of `parts` in it, on every rank.
void expect_found(const Start& start, const Options& parts) {
  EXPECT_TRUE(start.all_agree);
  ASSERT_EQ(start.findings.faults.size(), 1U)
      << fmt::format("{}", fmt::join(start.findings.faults, "\n"));
  for (const std::string& part : parts) {
    EXPECT_NE(start.findings.faults[0].find(part), std::string::npos)
        << "no '" << part << "' in: " << start.findings.faults[0];
  }
}

const std::vector<const char*> kFamilies = {"gpt", "bloom", "llama"};
const std::vector<Options> kLayouts = {
    {},
    {"--layout.ranks=4", "--layout.tp=4"},
    {"--layout.ranks=8", "--layout.tp=2", "--layout.pp=2", "--layout.sequence_parallel=true"},
    {"--layout.ranks=8", "--layout.tp=2", "--layout.pp=2", "--layout.zero_stage=3"},
    {"--layout.ranks=8", "--layout.pp=2", "--layout.zero_stage=0", "--layout.offload=optimizer"},
    {"--layout.ranks=4", "--layout.pp=2", "--layout.schedule=zero_bubble_v",
     "--layout.zero_stage=2"},
};

Options joined(Options options, const Options& more) {
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

// Rank r's weights differ from those of the others.
SourceOf stray_at(int stray, const ParamSource& right, const ParamSource& wrong) {
  return [stray, &right, &wrong](int r) -> const ParamSource& {
    return r == stray ? wrong : right;
  };
}

TEST(StartCheck, PassesInEveryLayoutAndType) {
  for (const char* family : kFamilies) {
    for (const Options& layout : kLayouts) {
      for (const char* type : {"fp32", "bf16", "fp16"}) {
        SCOPED_TRACE(fmt::format("{} {} {}", family, type, fmt::join(layout, " ")));
        const RunConfig config =
            config_of(family, joined(layout, {fmt::format("--precision.compute={}", type)}));
        const Start start =
            examine(config, [](const ParamSpec&, std::int64_t, std::span<float>) {});
        EXPECT_TRUE(start.findings.faults.empty())
            << fmt::format("{}", fmt::join(start.findings.faults, "\n"));
        EXPECT_NEAR(start.findings.loss, std::log(509), 0.2);
        EXPECT_EQ(start.findings.layers.size(), std::string(family) == "llama" ? 7U : 6U);
      }
    }
  }
}

// The norms of layers are those of the gradients, and add up to that of the step.
TEST(StartCheck, ShowsTheNormOfEachLayer) {
  const RunConfig config = config_of("gpt", kLayouts[2]);
  const Start start = examine(config, [](const ParamSpec&, std::int64_t, std::span<float>) {});
  Training training;
  training.config = rank_config(config);
  training.steps = 1;
  training.wants_grads = true;
  const Curve curve = run(training);
  std::map<std::string, double> squares;
  for (const auto& [name, values] : curve.grads) {
    const std::string layer = name.substr(0, name.find('.', name.starts_with("h.") ? 2 : 0));
    for (const float value : values) {
      squares[layer] += static_cast<double>(value) * value;
    }
  }
  double whole = 0;
  for (const LayerFacts& layer : start.findings.layers) {
    EXPECT_NEAR(layer.gradient_norm / std::sqrt(squares.at(layer.name)), 1, 1e-6) << layer.name;
    whole += layer.gradient_norm * layer.gradient_norm;
  }
  EXPECT_EQ(start.findings.layers.size(), squares.size());
  EXPECT_NEAR(std::sqrt(whole) / curve.norm[0], 1, 1e-6);
  EXPECT_NEAR(start.findings.gradient_norm / curve.norm[0], 1, 1e-12);
  EXPECT_NE(start_table(start.findings).find("h.3"), std::string::npos);
}

TEST(StartCheck, FindsADeadLayer) {
  for (const char* family : kFamilies) {
    for (const Options& layout : kLayouts) {
      SCOPED_TRACE(fmt::format("{} {}", family, fmt::join(layout, " ")));
      const WrongSource source([](const ParamSpec& param, std::int64_t, std::span<float> values) {
        if (param.name == "h.2.mlp.down.weight") multiply(values, 0);
      });
      const auto same = [&source](int) -> const ParamSource& {
        return source;
      };
      expect_found(examine(config_of(family, layout), same, false),
                   {"dead layer h.2: the gradient of h.2.mlp."});
    }
  }
}

// A part begins with the numbers of the first one.
TEST(StartCheck, FindsASeedThatTpRanksShare) {
  for (const Options& layout : kLayouts) {
    const RunConfig config = config_of("gpt", layout);
    const std::int64_t tp = config.layout.tp;
    if (tp == 1) continue;
    SCOPED_TRACE(fmt::format("{}", fmt::join(layout, " ")));
    const InitSource initial(5);
    const Start start =
        examine(config, [&](const ParamSpec& param, std::int64_t first, std::span<float> values) {
          if (param.split_dim != 0 || param.is_padded) return;
          const std::int64_t part = param.global.count() / tp;
          for (std::size_t i = 0; i < values.size(); ++i) {
            initial.read(param, StateKind::kWeight, (first + static_cast<std::int64_t>(i)) % part,
                         values.subspan(i, 1));
          }
        });
    expect_found(start, {"tp ranks 0 and 1 have the same numbers", "h.0.attn.q.weight", "seed"});
  }
}

TEST(StartCheck, FindsResidualProjectionsWithoutTheirScale) {
  for (const char* family : kFamilies) {
    for (const Options& layout : kLayouts) {
      SCOPED_TRACE(fmt::format("{} {}", family, fmt::join(layout, " ")));
      const Start start =
          examine(config_of(family, layout),
                  [](const ParamSpec& param, std::int64_t, std::span<float> values) {
                    const bool is_residual = param.name.ends_with(".attn.proj.weight") ||
                                             param.name.ends_with(".mlp.down.weight");
                    if (is_residual) multiply(values, std::sqrt(8.0));
                  });
      expect_found(start, {"h.0.attn.proj.weight", "1/sqrt(2*layers)", "7 more tensors"});
    }
  }
}

// One element of one rank of dp.
TEST(StartCheck, FindsAReplicaThatIsNotTheSame) {
  const InitSource right(5);
  for (const char* name : {"h.1.mlp.up.weight", "final.norm.weight", "embed.tokens.weight"}) {
    const WrongSource wrong(
        [name](const ParamSpec& param, std::int64_t first, std::span<float> values) {
          if (param.name == name && first == 0) values[0] = std::nextafter(values[0], 2.0f);
        });
    for (const char* zero : {"0", "1", "2"}) {
      const Options options = {"--layout.ranks=4", fmt::format("--layout.zero_stage={}", zero)};
      expect_found(examine(config_of("gpt", options), stray_at(2, right, wrong)),
                   {"replicas are not the same", "rank 2 has other bits of", name, "rank 0"});
    }
  }
}

// What every rank of tp holds, whole and in shards of ZeRO 3.
TEST(StartCheck, FindsTpRanksThatHoldOtherBits) {
  const InitSource right(5);
  const WrongSource wrong([](const ParamSpec& param, std::int64_t first, std::span<float> values) {
    if (param.name == "h.3.attn.norm.weight" && first == 0) values[0] = 1.5f;
  });
  for (const char* zero : {"1", "3"}) {
    const Options options = {"--layout.ranks=8", "--layout.tp=2", "--layout.pp=2",
                             fmt::format("--layout.zero_stage={}", zero)};
    // Of the last stage, tp 1: both of dp, so that only tp differs.
    const SourceOf source_of = [&](int r) -> const ParamSource& {
      return r == 5 || r == 7 ? static_cast<const ParamSource&>(wrong) : right;
    };
    expect_found(examine(config_of("gpt", options), source_of),
                 {"tp rank 1 has other bits of h.3.attn.norm.weight than tp rank 0"});
  }
}

TEST(StartCheck, FindsATiedTableWhoseEndsDiffer) {
  const InitSource right(5);
  const WrongSource wrong([](const ParamSpec& param, std::int64_t first, std::span<float> values) {
    if (param.name == "embed.tokens.weight" && first == 0) values[0] += 0.01f;
  });
  for (const char* zero : {"0", "3"}) {
    const Options options = {"--layout.ranks=3", "--layout.pp=3",
                             fmt::format("--layout.zero_stage={}", zero)};
    expect_found(examine(config_of("bloom", options), stray_at(2, right, wrong)),
                 {"tied table embed.tokens.weight has other bits on the last stage"});
  }
}

TEST(StartCheck, FindsALayerThatExplodes) {
  for (const Options& layout : kLayouts) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(layout, " ")));
    const Start start = examine(config_of("gpt", layout),
                                [](const ParamSpec& param, std::int64_t, std::span<float> values) {
                                  if (param.name == "h.1.mlp.norm.weight") multiply(values, 1e4);
                                });
    expect_found(start, {"exploding layer h.1", "100 times"});
  }
}

TEST(StartCheck, FindsALossFarFromThatOfANewModel) {
  const auto far = [](const ParamSpec& param, std::int64_t, std::span<float> values) {
    if (param.name == "final.norm.weight") multiply(values, 100);
  };
  expect_found(examine(config_of("llama", {}), far), {"the loss is", "ln(509) = 6.2324"});
  const WrongSource source(far);
  const auto same = [&source](int) -> const ParamSource& {
    return source;
  };
  EXPECT_TRUE(examine(config_of("llama", {}), same, false).findings.faults.empty());
}

TEST(StartCheck, NamesTheFirstLayerThatIsNotFinite) {
  const WrongSource source([](const ParamSpec& param, std::int64_t first, std::span<float> values) {
    if (param.name == "h.2.mlp.up.bias" && first == 0) values[0] = std::nanf("");
  });
  const auto same = [&source](int) -> const ParamSource& {
    return source;
  };
  expect_found(examine(config_of("gpt", kLayouts[2]), same, false),
               {"first that is not finite is h.2"});
}

// A step after it has the bits of one without it.
TEST(StartCheck, ChangesNoBit) {
  for (const char* type : {"fp32", "fp16"}) {
    for (const Options& layout : kLayouts) {
      SCOPED_TRACE(fmt::format("{} {}", type, fmt::join(layout, " ")));
      const RunConfig config =
          config_of("gpt", joined(layout, {fmt::format("--precision.compute={}", type)}));
      const RankConfig rank_of = rank_config(config);
      const RunPlan plan = plan_run(rank_of, 0);
      const auto stream = random_stream(config.model.vocab);
      const InitSource source(5);
      std::array<std::vector<double>, 2> losses;
      std::array<std::map<std::string, std::vector<float>>, 2> weights;
      std::mutex mutex;
      for (const std::size_t checks : {0U, 1U}) {
        ThreadWorld world(config.layout.ranks, 60);
        run_rank_threads(world, [&](int r) {
          const auto device = make_host_device();
          const Backend backend{
              .device = *device, .ops = "cpu", .join_world = [&](const CommParts& parts) {
                return world.join(r, parts);
              }};
          Rank rank(rank_of, backend, plan.of(r).whole);
          rank.store().load(source);
          for (int step = 1; step <= 3; ++step) {
            const StepData data(stream, config.layout, rank.mesh().coord(Axis::kDp), step - 1,
                                config.train.global_batch, config.train.seq_length);
            if (checks == 1) examine_start(rank, {config, true, step, data.micros});
            const StepResult result =
                rank.step(step, 0.01, data.micros, static_cast<int>(data.micros.size()));
            if (r == 0)
              losses[checks].insert(losses[checks].end(), {result.loss, result.grad_norm});
          }
          rank.store().settle();
          const std::lock_guard lock(mutex);
          EXPECT_EQ(compare_plans(plan.of(r).whole, rank.memory()), "");
          gather(rank, false, weights[checks]);
        });
      }
      EXPECT_EQ(losses[0], losses[1]);
      EXPECT_TRUE(weights[0] == weights[1]);
    }
  }
}

}  // namespace
}  // namespace orthant::test
