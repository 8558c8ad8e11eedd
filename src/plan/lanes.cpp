#include "plan/lanes.h"

#include <algorithm>

#include "plan/rates.h"

namespace orthant {
namespace {

void add_computing(StageLanes& stage, const Instruction& stretch, const Event& event) {
  std::vector<Bar>& bars = stage.computing;
  if (!bars.empty() && bars.back().at == stretch.at) {
    bars.back().end = event.end;
    return;
  }
  bars.push_back(
      {.at = stretch.at, .place = stretch.place, .begin = event.begin, .end = event.end});
}

void add_call(const Plan& plan, StageLanes& stage, const Instruction& call, const Event& event) {
  std::string group = call.lane == Lane::kHost     ? "host"
                      : call.lane == Lane::kBeside ? "updates"
                                                   : "copies";
  if (call.lane >= Lane::kFirstComm) {
    const Seat& seat = plan.world.groups.seat(stage.rank, call.lane);
    group = plan.world.groups.all[static_cast<std::size_t>(seat.group)].name;
  }
  auto lane = std::find_if(stage.comms.begin(), stage.comms.end(),
                           [&group](const CommLane& l) { return l.group == group; });
  if (lane == stage.comms.end()) {
    lane = stage.comms.insert(lane, {.group = std::move(group), .calls = {}});
  }
  lane->calls.push_back({.at = call.at,
                         .what = call.what,
                         .place = call.place,
                         .bytes = call.bytes,
                         .begin = event.begin,
                         .end = event.end});
}

// What computes nothing and waits for nothing is over when the one before it is.
void fill_ends(StageLanes& stage) {
  double now = 0;
  for (double& end : stage.ends) {
    now = std::max(now, end);
    end = now;
  }
}

}  // namespace

PipelineLanes lanes_of(const Plan& plan) {
  PipelineLanes lanes;
  const Machine& machine = plan.request.machine;
  const MeshShape mesh = mesh_shape(plan.config().layout);
  std::vector<int> stage_of(plan.classes.ranks.size(), -1);
  for (int pp = 0; pp < mesh.size(Axis::kPp); ++pp) {
    const int rank = mesh.rank_of({0, 0, 0, 0, pp});
    lanes.stages.push_back({.rank = rank, .computing = {}, .comms = {}, .ends = {}});
    lanes.stages.back().ends.resize(plan.world.of(rank).list.size());
    const int own = plan.classes.class_of[static_cast<std::size_t>(rank)];
    stage_of[static_cast<std::size_t>(own)] = pp;
  }
  const auto observe = [&](const Event& event) {
    const int pp = stage_of[static_cast<std::size_t>(event.who)];
    if (pp < 0) return;
    StageLanes& stage = lanes.stages[static_cast<std::size_t>(pp)];
    const auto index = static_cast<std::size_t>(event.index);
    const Instruction& instruction = plan.world.of(stage.rank).list[index];
    switch (instruction.kind) {
      case Instruction::Kind::kCompute:
        if (event.end > event.begin) add_computing(stage, instruction, event);
        stage.ends[index] = event.end;
        break;
      case Instruction::Kind::kStart: add_call(plan, stage, instruction, event); break;
      case Instruction::Kind::kWait: stage.ends[index] = event.end; break;
    }
  };
  const ProgramTables& tables = plan.world.tables;
  lanes.how_timed = plan.time.has_value()
                        ? fmt::format("times by the measured rates of machine {}", machine.name)
                        : "stage times in proportion to FLOPs, messages take none";
  lanes.makespan =
      run_timeline(plan.world, plan.classes, LaneOrder::kByPair,
                   plan.time.has_value() ? durations_on(machine, work_of(plan.config()), tables)
                                         : flop_durations(tables),
                   observe)
          .makespan;
  for (StageLanes& stage : lanes.stages) {
    fill_ends(stage);
  }
  return lanes;
}

std::string bar_name(const ProgramTables& tables, const Bar& bar) {
  if (bar.at.kind == 0) {
    const std::string& place = tables.name(bar.place);
    return place.empty() ? "start" : place;
  }
  std::string name = fmt::format("{}{}", bar.at.kind, bar.at.micro);
  if (bar.at.chunk != 0) name += fmt::format(".{}", bar.at.chunk);
  return name;
}

}  // namespace orthant
