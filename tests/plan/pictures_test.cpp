// Charts and traces: well formed, whole, and without a reference to anything outside.
#include "plan/pictures.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "base/check.h"
#include "base/json.h"

namespace orthant {
namespace {

Plan small_plan() {
  RunConfig config;
  config.model = preset("tiny-gpt");
  config.layout.ranks = 8;
  config.layout.tp = 2;
  config.layout.pp = 2;
  config.train.global_batch = 8;
  validate(config);
  return make_plan({.job = {.config = config}, .machine = load_machine("h200")});
}

// Reads tags one after another; empty when all that open also close, in order.
std::string fault_in_xml(const std::string& text) {
  std::vector<std::string> open;
  for (std::size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at + 1)) {
    const std::size_t end = text.find('>', at);
    if (end == std::string::npos) return "a tag has no end";
    const std::string tag = text.substr(at + 1, end - at - 1);
    if (tag.starts_with("!")) continue;
    if (std::count(tag.begin(), tag.end(), '"') % 2 != 0) return "quotes in " + tag;
    const std::string name = tag.substr(0, tag.find(' '));
    if (tag.starts_with("/")) {
      if (open.empty() || "/" + open.back() != name) return "nothing opens " + name;
      open.pop_back();
    } else if (!tag.ends_with("/")) {
      open.push_back(name);
    }
  }
  return open.empty() ? "" : "nothing closes " + open.back();
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t times = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++times;
  }
  return times;
}

TEST(Pictures, ChartsAreWellFormedAndWhole) {
  const Plan plan = small_plan();
  const PipelineLanes lanes = lanes_of(plan);
  const std::string svg = chart_svg(plan, lanes);
  EXPECT_EQ(fault_in_xml(svg), "");
  EXPECT_EQ(fault_in_xml(chart_html(plan, lanes)), "");
  EXPECT_EQ(count(svg, "http"), 1u) << "the name space alone";
  EXPECT_EQ(count(svg, "href"), 0u);
  // Every action of both stages, and the memory of both.
  for (const char kind : {'F', 'B'}) {
    for (int micro = 0; micro < 4; ++micro) {
      EXPECT_EQ(count(svg, fmt::format("<title>{}{}</title>", kind, micro)), 2u) << kind << micro;
    }
  }
  EXPECT_EQ(count(svg, "<title>update</title>"), 2u);
  EXPECT_EQ(count(svg, ">peak "), 2u);
  EXPECT_GE(count(svg, "<path "), 8u);
}

TEST(Pictures, ATraceHasEveryActionAndCall) {
  const Plan plan = small_plan();
  const PipelineLanes lanes = lanes_of(plan);
  const Json trace = Json::parse(trace_json(plan, lanes));
  int actions = 0;
  std::size_t calls = 0;
  double last = 0;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const char kind = event["name"].get<std::string>().front();
    if (event["tid"] != 0) ++calls;
    if (event["tid"] == 0 && (kind == 'F' || kind == 'B')) ++actions;
    EXPECT_GE(event["dur"].get<double>(), 0);
    last = std::max(last, event["ts"].get<double>() + event["dur"].get<double>());
  }
  EXPECT_EQ(actions, 2 * (4 + 4));
  std::size_t expected = 0;
  for (const StageLanes& stage : lanes.stages) {
    const std::vector<Instruction>& list = plan.world.of(stage.rank).list;
    expected += static_cast<std::size_t>(std::count_if(list.begin(), list.end(), is_call));
  }
  EXPECT_EQ(calls, expected);
  EXPECT_NEAR(last, plan.time->step_s * 1e6, 1e-3);
}

// Each row of the grid: computing and waiting make up the step.
TEST(Pictures, BarsOfARankDoNotOverlap) {
  const Plan plan = small_plan();
  for (const StageLanes& stage : lanes_of(plan).stages) {
    for (std::size_t i = 1; i < stage.computing.size(); ++i) {
      EXPECT_GE(stage.computing[i].begin, stage.computing[i - 1].end);
    }
  }
}

// The marks of a step reach the plan's high-water mark.
TEST(Pictures, MemoryOverTimeReachesThePeakOfEveryStage) {
  const Plan plan = small_plan();
  for (const int rank : {0, 4}) {
    std::int64_t most = 0;
    const std::vector<ClassBytes> marks = trace_memory(rank_config(plan.request.job), rank);
    for (const ClassBytes& mark : marks) {
      std::int64_t sum = 0;
      for (const std::int64_t bytes : mark) {
        sum += bytes;
      }
      most = std::max(most, sum);
    }
    const std::int64_t peak = plan.memory.of(rank).whole.device_bytes();
    EXPECT_LE(most, peak);
    EXPECT_GT(most, peak / 2);
    EXPECT_EQ(marks.size(), dry_run(rank_config(plan.request.job), rank, 0).step.size());
  }
}

TEST(Pictures, OtherEndingsAreRefused) {
  EXPECT_THROW(check_picture_names("a.png", ""), Error);
  EXPECT_THROW(check_picture_names("", "a.txt"), Error);
  check_picture_names("a.svg", "b.json");
}

}  // namespace
}  // namespace orthant
