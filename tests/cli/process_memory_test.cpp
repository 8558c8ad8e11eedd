// The whole process takes what the plan says: within 5 % and 100 MB, all ranks together.
#include <sys/resource.h>

#include "base/json.h"
#include "tests/cli/binary.h"

namespace orthant::test {
namespace {

class ProcessMemory : public Workplace {};

TEST_F(ProcessMemory, IsThatOfThePlan) {
  const std::vector<std::string> options = {
      "--model.layers=2",       "--model.hidden=256",     "--model.vocab=50000",
      "--layout.ranks=2",       "--layout.tp=1",          "--layout.pp=1",
      "--layout.zero_stage=1",  "--layout.micro_batch=4", "--train.steps=2",
      "--train.global_batch=8", "--checkpoint.dir="};
  std::vector<std::string> plan_words = {"plan", "run.toml", "--json"};
  plan_words.insert(plan_words.end(), options.begin(), options.end());
  const Finished plan = run(plan_words);
  ASSERT_EQ(plan.status, 0) << plan.err;
  std::int64_t planned = 0;
  const Json printed = Json::parse(plan.out);
  for (const auto& rank : printed["ranks"]) {
    planned += rank["device_bytes"].get<std::int64_t>();
  }
  expect_trains(options);
  rusage used = {};
  getrusage(RUSAGE_CHILDREN, &used);  // of the largest child: the training
  const double most = static_cast<double>(used.ru_maxrss) * 1024;
  EXPECT_GT(planned, 200'000'000) << "too small to say anything";
  EXPECT_GT(most, 0.95 * static_cast<double>(planned));
  EXPECT_LT(most, 1.05 * static_cast<double>(planned) + 100e6);
}

}  // namespace
}  // namespace orthant::test
