// LayoutConfig: how a run is laid over its ranks. The planner writes this and nothing else.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace orthant {

struct LayoutConfig {
  int ranks = 1;
  int tp = 1;
  int pp = 1;
  int virtual_stages = 1;
  bool sequence_parallel = false;
  std::int64_t micro_batch = 1;
  std::string schedule = "1f1b";
  std::string stages = "even";
  std::vector<std::int64_t> stage_layers;  // explicit layer counts; then `stages` is "list"
  int zero_stage = 1;
  std::string recompute = "none";
  std::string offload = "none";
  double deadline_s = 600;

  int dp() const { return ranks / (tp * pp); }
};

}  // namespace orthant
