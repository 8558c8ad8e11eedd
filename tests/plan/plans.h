// Plans of the run files that come with the program, and what they say.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace orthant {

inline Plan plan_of(const std::string& run, const std::string& machine, int hosts = 0,
                    const std::vector<std::string>& overrides = {}) {
  const std::string path = ORTHANT_SOURCE_DIR "/configs/runs/" + run + ".toml";
  PlanRequest request;
  request.job.config = load_run_config(path, overrides);
  request.machine = load_machine(machine);
  request.num_hosts = hosts;
  return make_plan(request);
}

inline bool has(const std::vector<std::string>& texts, const std::string& part) {
  return std::any_of(texts.begin(), texts.end(), [&part](const std::string& text) {
    return text.find(part) != std::string::npos;
  });
}

inline std::string all_of(const Plan& plan) {
  std::string text;
  for (const std::string& advice : plan.advice) {
    text += advice + "\n";
  }
  return text;
}

}  // namespace orthant
