// Timeline: the programs of all ranks run in virtual time, one rank for each class of ranks that
// cannot be told apart. Without times it proves that no rank waits for ever.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "plan/program.h"
#include "plan/world.h"

namespace orthant {

// A step as all ranks run it: each rank's program by its kind.
struct World {
  ProgramTables tables;
  std::vector<Program> kinds;
  std::vector<int> kind_of;  // by world rank
  Groups groups;

  const Program& of(int rank) const {
    return kinds[static_cast<std::size_t>(kind_of[static_cast<std::size_t>(rank)])];
  }
};

// What has to come one after another.
enum class LaneOrder : std::uint8_t {
  kByPair,   // the collectives of a group, the messages of each ordered pair
  kInOrder,  // everything of a communicator, as on a stream
};

// How long things take, in seconds; nothing where it is empty.
struct Durations {
  std::vector<double> stretches;  // by number
  std::function<double(const Instruction& call, const Group& group, int rank)> call;
  std::function<double(const Instruction& copy)> copy;  // between device and host, or on the host
};

// What a class has done: for charts.
struct Event {
  int who;  // class
  std::int32_t
      index;  // of the instruction: a stretch, the start of a call, or a wait that took time
  double begin;
  double end;
};

struct Timeline {
  std::string deadlock;  // why a rank can never go on; empty: all reach the end
  double makespan = 0;
  struct Times {
    double compute = 0;
    std::map<std::string, double> waits;  // by group: what computing did not hide
  };
  std::vector<Times> classes;
};

// `observe`: null, or sees the events of every class.
Timeline run_timeline(const World& world, const Classes& classes, LaneOrder order,
                      const Durations& durations, const std::function<void(const Event&)>& observe);

}  // namespace orthant
