// The plan of a run: what all ranks hold, what they send, whether any can wait for ever, and how
// long a step takes on a machine.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/machine.h"
#include "plan/match.h"
#include "plan/traffic.h"
#include "train/fit.h"

namespace orthant {

struct PlanRequest {
  Job job;
  Machine machine;
  int num_hosts = 0;  // 0: as many as the ranks need
};

// What ZeRO would cost and leave, for a rank of the first stage.
struct ZeroCost {
  int stage;
  std::string refused;  // why this layout cannot have it; empty: it can
  ClassBytes classes{};
  std::int64_t device_bytes = 0;
  std::int64_t calls = 0;  // over dp, of one rank in a step
  std::int64_t sent = 0;
};

// Of one rank, in a step that takes Plan::step_s.
struct StepTime {
  double step_s = 0;
  double compute_s = 0;  // of the busiest class
  std::map<std::string, double>
      waits;  // by group: the mean over ranks of what computing did not hide
  double tokens_per_s = 0;
  double mfu = 0;  // of the machine's peak; 0: that is not known
};

struct Plan {
  PlanRequest request;
  MemoryLimit limit;
  RunPlan memory;
  World world;
  Classes classes;
  MatchResult match;
  Fit fit;
  double bubble = 0;  // idle share at stage times in proportion to FLOPs, messages taking none
  std::optional<StepTime> time;  // absent: the machine is not measured, or lacks ...
  std::string missing_rate;      // ... this
  std::vector<Traffic> traffic;  // of the busiest ranks
  std::vector<ZeroCost> zero;
  std::vector<std::string> advice;

  const RunConfig& config() const { return request.job.config; }
};

Plan make_plan(const PlanRequest& request);

MemoryLimit limit_of(const Machine& machine, const Job& job);

// Warnings about the layout, and a better one to try first where this is cut finer than its memory
// asks for. advice.cpp
std::vector<std::string> advise(const Plan& plan);

// plan_text.cpp
std::string plan_text(const Plan& plan);
// One JSON object. plan_json.cpp
std::string plan_json(const Plan& plan);

}  // namespace orthant
