// The sizes of a step's batch: what two of its numbers say of the third, and what does not divide.
#include "train/run_batch.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace orthant {
namespace {

RunConfig parse(const std::string& text, const std::vector<std::string>& overrides) {
  return parse_run_config("[model]\npreset = \"tiny-gpt\"\n" + text, "run.toml", overrides);
}

struct Bad {
  std::vector<std::string> overrides;
  std::string message;
};

void expect_messages(const std::vector<Bad>& cases) {
  for (const Bad& bad : cases) {
    try {
      (void)parse("", bad.overrides);
      ADD_FAILURE() << "nothing is refused; expected: " << bad.message;
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::kUser);
      EXPECT_EQ(error.what(), bad.message);
    }
  }
}

TEST(RunBatch, BatchesThatDoNotDivideNameTheNearestThatDo) {
  expect_messages({
      {{"--layout.ranks=4", "--layout.micro_batch=2", "--train.global_batch=12"},
       "train.global_batch=12 is not a multiple of micro_batch*dp=2*4=8; use 8 or 16, or "
       "layout.micro_batch=1 or 3, or layout.ranks=3 or 6"},
      {{"--layout.ranks=8", "--layout.tp=2", "--layout.micro_batch=4", "--train.global_batch=24"},
       "train.global_batch=24 is not a multiple of micro_batch*dp=4*4=16; use 16 or 32, or "
       "layout.micro_batch=3 or 6, or layout.ranks=6 or 12"},
      {{"--layout.ranks=4"},
       "train.global_batch=1 is not a multiple of micro_batch*dp=1*4=4; use 4, or layout.ranks=1"},
      {{"--layout.ranks=2", "--train.global_batch=2", "--train.batch_ramp=[[10, 4], [20, 7]]"},
       "train.batch_ramp: global_batch=7 is not a multiple of micro_batch*dp=1*2=2; use 6 or 8, or "
       "layout.ranks=1 or 7"},
      {{"--layout.ranks=2", "--layout.micro_batch=2", "--train.accumulation=3",
        "--train.global_batch=16"},
       "train.global_batch=16 is not micro_batch*dp*accumulation=2*2*3=12; use 12, or "
       "accumulation=4"},
      {{"--layout.ranks=2", "--layout.micro_batch=2", "--train.accumulation=4",
        "--train.global_batch=24"},
       "train.global_batch=24 is not micro_batch*dp*accumulation=2*2*4=16; use 16, or "
       "accumulation=6, or layout.micro_batch=3"},
      {{"--layout.ranks=2", "--train.accumulation=3", "--train.global_batch=16"},
       "train.global_batch=16 is not a multiple of dp*accumulation=2*3=6; use 12 or 18, or "
       "train.accumulation=2 or 4"},
      {{"--train.accumulation=1000000000", "--layout.micro_batch=1000000000"},
       "train.global_batch=1000000000000000000 is above 1000000000; correct it"},
      {{"--train.accumulation=-1"}, "train.accumulation=-1 must be at least 0; correct it"},
  });
}

TEST(RunBatch, MicroBatchesThatAreNamedFitHalvesAndRowsOfTp) {
  expect_messages({
      {{"--layout.tp=2", "--layout.ranks=2", "--layout.tp_overlap=halves", "--layout.micro_batch=4",
        "--train.global_batch=6"},
       "train.global_batch=6 is not a multiple of micro_batch*dp=4*1=4; use 4 or 8, or "
       "layout.micro_batch=2 or 6"},
      {{"--layout.tp=2", "--layout.ranks=2", "--layout.sequence_parallel=true",
        "--layout.micro_batch=4", "--model.max_positions=33", "--train.global_batch=6"},
       "train.global_batch=6 is not a multiple of micro_batch*dp=4*1=4; use 4 or 8, or "
       "layout.micro_batch=2 or 6"},
      {{"--layout.tp=2", "--layout.ranks=2", "--layout.tp_overlap=halves", "--layout.micro_batch=4",
        "--train.accumulation=2", "--train.global_batch=6"},
       "train.global_batch=6 is not micro_batch*dp*accumulation=4*1*2=8; use 8"},
  });
}

// global_batch = micro_batch * dp * accumulation, with dp from the ranks.
TEST(RunBatch, TwoNumbersOfABatchGiveTheThird) {
  const auto numbers = [](std::vector<std::string> options) {
    options.insert(options.end(), {"--layout.ranks=4", "--layout.tp=2"});
    const RunConfig config = parse("", options);
    return std::pair(config.train.global_batch, config.layout.micro_batch);
  };
  EXPECT_EQ(numbers({"--layout.micro_batch=3", "--train.accumulation=5"}), std::pair(30L, 3L));
  EXPECT_EQ(numbers({"--train.global_batch=24", "--train.accumulation=4"}), std::pair(24L, 3L));
  EXPECT_EQ(numbers({"--train.global_batch=24", "--layout.micro_batch=3"}), std::pair(24L, 3L));
  EXPECT_EQ(numbers({"--train.accumulation=4"}), std::pair(8L, 1L));
  EXPECT_EQ(
      numbers({"--train.global_batch=24", "--layout.micro_batch=3", "--train.accumulation=4"}),
      std::pair(24L, 3L));
  const RunConfig config = parse("", {"--layout.micro_batch=3", "--train.accumulation=5"});
  EXPECT_EQ(to_toml(parse_run_config(to_toml(config), "log", {})), to_toml(config));
}

}  // namespace
}  // namespace orthant
