// Plans of the run files that come with the program, against published and computed numbers.
#include <gtest/gtest.h>

#include "base/check.h"
#include "base/json.h"
#include "pipeline/programs.h"
#include "tests/plan/plans.h"

namespace orthant {
namespace {

// Weights, gradients and optimizer state of the mean rank.
double state_gb(const Plan& plan) {
  double sum = 0;
  for (int rank = 0; rank < plan.config().layout.ranks; ++rank) {
    const ClassBytes classes = plan.memory.of(rank).whole.by_class();
    for (const MemClass what :
         {MemClass::kParameters, MemClass::kGradients, MemClass::kOptimizer}) {
      sum += static_cast<double>(classes[static_cast<std::size_t>(what)]);
    }
  }
  return sum * 1e-9 / plan.config().layout.ranks;
}

// Of a GPT of 7.4 B parameters at dp 64, as in the ZeRO paper: weights 2 bytes, gradients 2 or 4,
// master and moments 12, each sharded from its stage on. 7.5 B would be 120 GB, 31.4, 16.6 and 1.9
// with gradients of 2 bytes, and 135 GB with those of 4. Split masters take 2 bytes less.
TEST(Plan, StatesOfZeroAreThoseOfTheFormula) {
  struct Case {
    const char* master;
    const char* grads;
    int stage;
    double bytes;
  };
  for (const Case& c : {Case{"fp32", "bf16", 0, 16},
                        {"fp32", "bf16", 1, 4 + 12.0 / 64},
                        {"fp32", "bf16", 2, 2 + 14.0 / 64},
                        {"fp32", "bf16", 3, 16.0 / 64},
                        {"fp32", "fp32", 0, 18},
                        {"fp32", "fp32", 1, 6 + 12.0 / 64},
                        {"split", "bf16", 0, 14},
                        {"split", "fp32", 1, 6 + 10.0 / 64},
                        {"split", "fp32", 3, 16.0 / 64}}) {
    Plan plan;
    RunConfig& config = plan.request.job.config;
    config.model = family_defaults("gpt");
    config.model.layers = 36;
    config.model.hidden = 4096;
    config.model.heads = 32;
    config.model.vocab = 50304;
    config.model.tie_embeddings = false;  // a tied table has a gradient for each of its uses
    config.layout.ranks = 64;
    config.layout.zero_stage = c.stage;
    config.train.global_batch = 64;
    config.train.seq_length = 128;
    config.precision.compute = "bf16";
    config.precision.master = c.master;
    config.precision.grad_accum = c.grads;
    validate(config);
    plan.memory = plan_run(rank_config(config), 0);
    const double gb = static_cast<double>(count_parameters(config.model)) * 1e-9 * c.bytes;
    EXPECT_NEAR(state_gb(plan) / gb, 1, 0.005)
        << "ZeRO-" << c.stage << ", masters " << c.master << ", gradients " << c.grads;
  }
}

// Weights, gradients and optimizer state of three published trainings without ZeRO (arXiv
// 2205.05198, figure 1), GiB; the authors count 16 to 18 bytes a parameter.
TEST(Plan, StatesOfPublishedTrainings) {
  struct Published {
    std::int64_t layers, hidden, heads;
    int tp, pp;
    double gib;
  };
  for (const Published& run : {Published{48, 6144, 64, 8, 1, 45.56},
                               {96, 12288, 96, 8, 8, 45.56},
                               {105, 20480, 128, 8, 35, 31.64}}) {
    Plan plan;
    RunConfig& config = plan.request.job.config;
    config.model = family_defaults("gpt");
    config.model.layers = run.layers;
    config.model.hidden = run.hidden;
    config.model.heads = run.heads;
    config.model.vocab = 51200;
    config.model.max_positions = 2048;
    config.layout.tp = run.tp;
    config.layout.pp = run.pp;
    config.layout.ranks = run.tp * run.pp;
    config.layout.zero_stage = 0;
    config.precision.compute = "bf16";
    validate(config);
    plan.memory = plan_run(rank_config(config), 0);
    EXPECT_NEAR(state_gb(plan) * 1e9 / (run.gib * 1024 * 1024 * 1024), 1, 0.05) << run.layers;
  }
}

TEST(Plan, BloomHasTheParametersARankOfItsRealDegrees) {
  const Plan real = plan_of("bloom-176b", "a100-80g");
  EXPECT_TRUE(real.match.is_whole());
  EXPECT_EQ(real.world.kind_of.size(), 384u);
  EXPECT_NE(plan_text(real).find(", 3.67 B parameters a rank"), std::string::npos)
      << plan_text(real);
  const Plan article = plan_of("bloom-176b-article", "a100-80g");
  EXPECT_TRUE(article.match.is_whole());
  EXPECT_NE(plan_text(article).find(", 5.51 B parameters a rank"), std::string::npos);
  // tp 8 in place of 4: more over tp.
  const auto tp_bytes = [](const Plan& plan) {
    for (const Traffic& traffic : plan.traffic) {
      if (traffic.group == "tp") return traffic.sent;
    }
    return std::int64_t{0};
  };
  EXPECT_GT(tp_bytes(article), tp_bytes(real));
}

TEST(Plan, TheHardwareTableHasItsStates) {
  struct Row {
    const char* run;
    const char* machine;
    int hosts;
    int ranks;
    double gb;
  };
  for (const Row& row : {Row{"llama-7b-article", "a100-40g", 2, 8, 30.3},
                         {"llama-13b-article", "a100-80g", 4, 32, 14.6},
                         {"llama-70b-article", "a100-80g", 16, 256, 16.2}}) {
    const Plan plan = plan_of(row.run, row.machine, row.hosts);
    EXPECT_EQ(plan.config().layout.ranks, row.ranks) << row.run;
    EXPECT_NEAR(state_gb(plan) / row.gb, 1, 0.01) << row.run;
    EXPECT_TRUE(plan.fit.fits) << row.run;
    EXPECT_EQ(has(plan.advice,
                  "256 ranks on 16 hosts need 16 devices a host; a host of 'a100-80g' "
                  "has 8: use 32 hosts"),
              row.ranks == 256)
        << all_of(plan);
  }
}

// What all ranks compute, against the model's closed form: GPT, and LLaMA with grouped heads.
TEST(Plan, ExecutedFlopsAreThoseOfTheClosedForm) {
  for (const char* run : {"article-3.8b", "llama-70b-article"}) {
    const Plan plan = plan_of(run, "a100-80g");
    double executed = 0;
    for (const int kind : plan.world.kind_of) {
      for (const Instruction& instruction : plan.world.kinds[static_cast<std::size_t>(kind)].list) {
        if (instruction.kind != Instruction::Kind::kCompute) continue;
        executed += plan.world.tables.at(instruction.link).flops;
      }
    }
    const RunConfig& config = plan.config();
    const double model = sequence_flops(config.model, config.train.seq_length) *
                         static_cast<double>(config.train.global_batch);
    EXPECT_NEAR(executed / model, 1, 0.01) << run;
  }
}

double bubble_of(const ScheduleChoice& choice, int micros) {
  Programs programs(choice);
  return bubble(programs.training(micros), programs.placement(), 1, 1, 1);
}

// Idle shares of 1f1b, percent: (p - 1) / (m + p - 1). Interleaving divides p - 1 by the parts of a
// rank; backwards in two halves idle less.
TEST(Plan, BubblesOfThePublishedTable) {
  struct Case {
    int stages;
    int micros;
    double percent;
  };
  for (const Case& c : {Case{2, 8, 11.1},
                        {2, 16, 5.9},
                        {4, 16, 15.8},
                        {4, 32, 8.6},
                        {8, 32, 17.9},
                        {8, 64, 9.9},
                        {12, 48, 18.6},
                        {12, 128, 7.9}}) {
    const auto choice = [&c](const char* name, int parts) {
      return ScheduleChoice{.name = name, .num_ranks = c.stages, .num_chunks = parts};
    };
    const std::string where = fmt::format("{} x {}", c.stages, c.micros);
    const double plain = bubble_of(choice("1f1b", 1), c.micros);
    EXPECT_NEAR(100 * plain, c.percent, 0.05) << where;
    EXPECT_NEAR(100 * bubble_of(choice("gpipe", 1), c.micros), c.percent, 0.05) << where;
    const double ideal = (c.stages - 1) / 2.0 / (c.micros + (c.stages - 1) / 2.0);
    if (c.micros % c.stages == 0) {
      EXPECT_NEAR(bubble_of(choice("interleaved", 2), c.micros), ideal, 1e-9) << where;
    }
    EXPECT_LT(bubble_of(choice("zero_bubble", 1), c.micros), plain) << where;
    EXPECT_LT(bubble_of(choice("zero_bubble_v", 2), c.micros), plain) << where;
  }
}

// Blocks of one size and no head to speak of: the plan's own idle share is the formula's.
TEST(Plan, BubbleFollowsFlops) {
  RunConfig config;
  config.model = preset("tiny-llama");
  config.model.vocab = 8;
  config.layout.ranks = 4;
  config.layout.pp = 4;
  config.train.global_batch = 8;
  validate(config);
  const Plan plan = make_plan({.job = {.config = config}, .machine = load_machine("cpu")});
  EXPECT_NEAR(plan.bubble, 3.0 / 11.0, 0.02);
  EXPECT_FALSE(plan.time.has_value());
}

// What blocks compute again before a backward leaves its weight half to fill gaps.
TEST(Plan, ZeroBubbleStaysAheadWithRecompute) {
  RunConfig config;
  config.model = preset("tiny-llama");
  config.model.layers = 8;
  config.model.vocab = 8;
  config.layout.ranks = 4;
  config.layout.pp = 4;
  config.train.global_batch = 8;
  const auto bubble_with = [&config](const char* schedule) {
    config.layout.schedule = schedule;
    config.layout.virtual_stages = schedule == std::string("zero_bubble_v") ? 2 : 1;
    validate(config);
    return make_plan({.job = {.config = config}, .machine = load_machine("cpu")}).bubble;
  };
  for (const char* recompute : {"none", "cheap", "attention"}) {
    config.layout.recompute = recompute;
    const double plain = bubble_with("1f1b");
    EXPECT_LT(bubble_with("zero_bubble"), 0.6 * plain) << recompute;
    EXPECT_LT(bubble_with("zero_bubble_v"), 0.7 * plain) << recompute;
  }
}

TEST(Plan, WhatDoesNotFitNamesClassesAndChanges) {
  const std::vector<std::string> options = {"--layout.tp=1", "--layout.pp=1", "--layout.ranks=16",
                                            "--layout.micro_batch=2"};
  const Plan plan = plan_of("llama-13b-article", "a100-40g", 0, options);
  ASSERT_FALSE(plan.fit.fits);
  const std::string text = explain_misfit(plan.request.job, plan.memory, plan.limit);
  EXPECT_NE(text.find("a rank of stage 0: "), std::string::npos) << text;
  EXPECT_NE(text.find("gradients"), std::string::npos) << text;
  const std::vector<Remedy> remedies = find_remedies(plan.request.job, plan.memory, plan.limit);
  ASSERT_FALSE(remedies.empty());
  EXPECT_TRUE(remedies.front().fits) << text;
  for (const Remedy& remedy : remedies) {
    EXPECT_GT(remedy.saved, 0);
    // What is said of a change is what a plan with it says.
    std::vector<std::string> overrides = options;
    for (const std::string& option : remedy.options) {
      overrides.push_back("--" + option);
    }
    const Plan changed = plan_of("llama-13b-article", "a100-40g", 0, overrides);
    EXPECT_EQ(changed.fit.fits, remedy.fits) << remedy.options.front();
    EXPECT_EQ(plan.fit.needed - changed.fit.needed, remedy.saved) << remedy.options.front();
  }
}

TEST(Plan, JsonHasWhatTheContractNames) {
  const Plan plan = plan_of("llama-7b-article", "a100-40g");
  const Json json = Json::parse(plan_json(plan));
  EXPECT_TRUE(json["fits"].get<bool>());
  EXPECT_TRUE(json["step_ms"].is_null());
  EXPECT_TRUE(json["deadlock_free"].get<bool>());
  ASSERT_EQ(json["ranks"].size(), 8u);
  for (const Json& rank : json["ranks"]) {
    std::int64_t sum = 0;
    for (const char* what : {"parameters", "gradients", "optimizer", "activations", "work",
                             "staging", "communication", "libraries"}) {
      sum += rank["classes"][what].get<std::int64_t>();
    }
    EXPECT_EQ(sum, rank["device_bytes"].get<std::int64_t>());
    EXPECT_GT(rank["host_bytes"].get<std::int64_t>(), 0);
  }
  EXPECT_EQ(json["ranks"][5]["dp"], 2);
  EXPECT_EQ(json["ranks"][5]["tp"], 1);
}

// Ranks that are processes have links beside their arenas.
TEST(Plan, HostClassesAddUpAndHaveTheLinksOfProcesses) {
  PlanRequest request;
  RunConfig& config = request.job.config;
  config.model = preset("tiny-gpt");
  config.layout.ranks = 8;
  config.layout.tp = 2;
  config.layout.pp = 2;
  config.layout.offload = "optimizer";
  config.train.global_batch = 8;
  validate(config);
  request.machine = load_machine("cpu");
  std::vector<std::int64_t> links;
  for (const Transport transport :
       {Transport::kThreads, Transport::kSharedMemory, Transport::kMpi}) {
    request.job.transport = transport;
    const Plan plan = make_plan(request);
    const Json rank = Json::parse(plan_json(plan))["ranks"][0];
    std::int64_t sum = 0;
    for (const auto& [what, bytes] : rank["host_classes"].items()) {
      sum += bytes.get<std::int64_t>();
    }
    EXPECT_EQ(sum, rank["host_bytes"].get<std::int64_t>());
    links.push_back(rank["host_classes"]["communication"].get<std::int64_t>());
    EXPECT_EQ(plan_text(plan).find("for links to other processes") != std::string::npos,
              links.back() > 0);
  }
  // 7 of the world, 1 each of tp, dp, the ends and, for messages, of both directions of pp.
  EXPECT_EQ(links[0], 0);
  EXPECT_EQ(links[1], 7 * link_bytes(Transport::kSharedMemory, 7) +
                          5 * link_bytes(Transport::kSharedMemory, 1));
  EXPECT_EQ(links[2], 7 * link_bytes(Transport::kMpi, 7) + 5 * link_bytes(Transport::kMpi, 1));
}

// A measured machine gives times, whose parts add up.
TEST(Plan, AMeasuredMachineGivesAStepTime) {
  const Plan plan = plan_of("llama-13b-article", "h200");
  ASSERT_TRUE(plan.time.has_value());
  EXPECT_GT(plan.time->step_s, plan.time->compute_s);
  EXPECT_GT(plan.time->mfu, 0.1);
  EXPECT_LT(plan.time->mfu, 0.8);
  double waits = 0;
  for (const auto& [group, seconds] : plan.time->waits) {
    waits += seconds;
  }
  EXPECT_LT(waits, plan.time->step_s);
}

}  // namespace
}  // namespace orthant
