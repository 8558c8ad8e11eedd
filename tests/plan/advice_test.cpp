// What is said of plans that are legal and seldom meant.
#include <gtest/gtest.h>

#include "tests/plan/plans.h"

namespace orthant {
namespace {

TEST(Advice, CallsOfTpWithoutWorkBesideThemNameHalves) {
  std::vector<std::string> overrides = {
      "--layout.ranks=4",        "--layout.tp=4",
      "--layout.pp=1",           "--layout.sequence_parallel=true",
      "--layout.micro_batch=8",  "--train.global_batch=16",
      "--train.seq_length=2048", "--layout.recompute=none"};
  const char* advice = "layout.tp_overlap=halves";
  const Plan rows = plan_of("llama-7b-article", "h200", 0, overrides);
  EXPECT_TRUE(has(rows.advice, advice)) << all_of(rows);
  overrides.emplace_back("--layout.tp_overlap=halves");
  const Plan halves = plan_of("llama-7b-article", "h200", 0, overrides);
  EXPECT_FALSE(has(halves.advice, advice)) << all_of(halves);
  ASSERT_TRUE(rows.time && halves.time);
  EXPECT_LT(halves.time->step_s, 0.9 * rows.time->step_s);
  overrides.back() = "--layout.micro_batch=1";
  EXPECT_FALSE(has(plan_of("llama-7b-article", "h200", 0, overrides).advice, advice))
      << "one sequence has no halves";
}

TEST(Advice, DropoutInDeterministicModeIsWarnedOf) {
  const char* advice = "by a kernel of 5.0 TFLOP/s in place of up to 407";
  std::vector<std::string> overrides = {"--model.dropout=0.1", "--train.deterministic=true",
                                        "--layout.ranks=1", "--layout.tp=1", "--layout.pp=1"};
  const Plan exact = plan_of("article-3.8b", "h200", 0, overrides);
  EXPECT_TRUE(has(exact.advice, advice)) << all_of(exact);
  overrides[1] = "--train.deterministic=false";
  const Plan fast = plan_of("article-3.8b", "h200", 0, overrides);
  EXPECT_FALSE(has(fast.advice, advice)) << all_of(fast);
  ASSERT_TRUE(exact.time && fast.time);
  EXPECT_LT(fast.time->step_s, 0.9 * exact.time->step_s);
}

TEST(Advice, ALayoutCutTooFineNamesACoarserOne) {
  const Plan example = plan_of("article-3.8b", "a100-80g");
  EXPECT_TRUE(has(example.advice,
                  "over-sharded: 0.47 B parameters a rank; tp 1, pp 1, dp 64 with "
                  "ZeRO-1 fits"))
      << all_of(example);
  EXPECT_EQ(rank_config(example.request.job).max_micros, 16);
  const Plan case_13b = plan_of("llama-13b-article", "a100-80g");
  EXPECT_TRUE(has(case_13b.advice, "over-sharded: 1.63 B parameters a rank; tp 2, pp 1, dp 16"))
      << all_of(case_13b);
}

TEST(Advice, TpBeyondAHostIsWarnedOf) {
  const Plan plan = plan_of("article-3.8b", "a100-80g", 0,
                            {"--layout.tp=12", "--layout.pp=1", "--layout.ranks=24"});
  EXPECT_TRUE(has(plan.advice, "layout.tp=12 is larger than the 8 devices of a host"))
      << all_of(plan);
  EXPECT_TRUE(has(plan.advice, "at 25 GB/s in place of NVLink at 300 GB/s")) << all_of(plan);
}

}  // namespace
}  // namespace orthant
