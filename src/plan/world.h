// World: the groups that every rank of a layout makes, and which ranks cannot be told apart.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dist/mesh.h"
#include "plan/program.h"
#include "train/rank.h"

namespace orthant {

struct Group {
  Lane lane;
  std::string name;          // "tp"
  std::vector<int> members;  // world ranks, ascending
};

// A rank's place in one of its groups.
struct Seat {
  int group = -1;  // in Groups::all; -1: the rank has no such lane
  int position = -1;
};

struct Groups {
  std::vector<Group> all;
  std::vector<std::vector<Seat>> seats;  // by world rank, then by lane from kFirstComm on

  const Seat& seat(int rank, Lane lane) const;
  int num_ranks() const { return static_cast<int>(seats.size()); }
};

// The lane of the rank's group of that name.
Lane lane_of(const Groups& groups, int rank, std::string_view name);

// As each rank's Mesh makes them. Throws when two ranks differ about a group.
Groups make_groups(const RankConfig& config);

// Ranks of one class run the same program in groups of the same classes, so that one of them stands
// for all.
struct Classes {
  std::vector<int> class_of;  // by world rank
  std::vector<int> ranks;     // the first rank of each class
};
Classes find_classes(const Groups& groups, std::span<const Program> kinds,
                     std::span<const int> kind_of);

}  // namespace orthant
