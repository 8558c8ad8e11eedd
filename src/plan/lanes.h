// Lanes: one pipeline's step in virtual time, for pictures of it.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"

namespace orthant {

// What one rank does at a time. Times in seconds.
struct Bar {
  At at;                       // of computing: its action; kind 0 is the update
  std::string_view what = {};  // of a call
  std::int32_t place = 0;
  std::int64_t bytes = 0;
  double begin = 0;
  double end = 0;
};

struct CommLane {
  std::string group;
  std::vector<Bar> calls;
};

// The rank of a stage with tp 0 and dp 0.
struct StageLanes {
  int rank = 0;
  std::vector<Bar> computing;  // a bar an action, its waits included
  std::vector<CommLane> comms;
  std::vector<double> ends;  // by instruction of the rank's program: when it was over
};

struct PipelineLanes {
  std::vector<StageLanes> stages;
  double makespan = 0;
  std::string how_timed;  // a sentence
};

PipelineLanes lanes_of(const Plan& plan);

// "F3.1", or between actions the place: "update".
std::string bar_name(const ProgramTables& tables, const Bar& bar);

}  // namespace orthant
