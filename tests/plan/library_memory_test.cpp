// What libraries take of a GPU, in a plan's text, JSON and check.
#include <gtest/gtest.h>

#include "base/json.h"
#include "plan/plan.h"

namespace orthant {
namespace {

// On one host by mapped memory, on several by NCCL, whose groups and lines each take some.
TEST(PlannedLibraries, AreCountedByWhatConnectsTheRanks) {
  PlanRequest request;
  RunConfig& config = request.job.config;
  config.model = preset("tiny-gpt");
  config.layout.tp = 2;
  config.device.kind = "cuda";
  request.machine = load_machine("h200");
  const LibraryMemory& memory = request.machine.facts.libraries;
  const auto mib_of = [&](int ranks, Transport transport, const char* text) {
    config.layout.ranks = ranks;
    config.train.global_batch = ranks;
    request.job.transport = transport;
    validate(config);
    const Plan plan = make_plan(request);
    EXPECT_NE(plan_text(plan).find(text), std::string::npos) << plan_text(plan);
    const Json json = Json::parse(plan_json(plan));
    const std::int64_t bytes = json["ranks"][0]["classes"]["libraries"].get<std::int64_t>();
    EXPECT_EQ(json["needed_bytes"].get<std::int64_t>(),
              fullest_bytes(request.job, plan.memory, plan.limit.libraries));
    EXPECT_EQ(json["available_bytes"].get<std::int64_t>(), std::int64_t{143771} << 20);
    return bytes >> 20;
  };
  EXPECT_EQ(mib_of(8, Transport::kThreads, "mapped memory of other ranks (7)"),
            memory.libraries_mib + 7 * memory.peer_mib);
  const std::int64_t by_nccl = memory.libraries_mib + memory.nccl_mib +
                               2 * memory.nccl_group_mib +  // tp and dp
                               4 * memory.nccl_small_mib;   // world, model, both ways of tp's pair
  EXPECT_EQ(mib_of(16, Transport::kThreads, " NCCL, "), by_nccl);
  EXPECT_EQ(mib_of(8, Transport::kSockets, "its groups (2)"), by_nccl);
  config.layout.tp = 1;
  EXPECT_EQ(mib_of(1, Transport::kThreads, "context and modules"), memory.libraries_mib);
}

}  // namespace
}  // namespace orthant
