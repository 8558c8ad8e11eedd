#include "plan/world.h"

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "comm/communicator.h"

namespace orthant {
namespace {

std::size_t index_of(Lane lane) {
  return static_cast<std::size_t>(lane) - static_cast<std::size_t>(Lane::kFirstComm);
}

// A communicator that moves nothing and notes the groups that are made from it.
class Recorder final : public Communicator {
 public:
  Recorder(std::string name, std::vector<int> members, int rank, int lane, const CommParts& parts,
           std::vector<Group>& made)
      : Communicator(std::move(name), std::move(members), rank, lane, parts),
        made_(made) {}

  std::unique_ptr<Communicator> subgroup(std::string name, std::vector<int> members,
                                         int lane) override {
    const int position = position_of(members);
    made_.push_back({.lane = static_cast<Lane>(static_cast<int>(Lane::kFirstComm) + lane),
                     .name = name,
                     .members = members});
    return std::make_unique<Recorder>(std::move(name), std::move(members), position, lane, parts(),
                                      made_);
  }

 private:
  void do_start(const Call& /*call*/, Token /*token*/) override {}
  void do_wait(const Call& /*call*/, Token /*token*/) override {}
  std::vector<Group>& made_;
};

// Collects the groups of all ranks, each once.
class GroupTable {
 public:
  explicit GroupTable(int num_ranks) { groups_.seats.resize(static_cast<std::size_t>(num_ranks)); }

  void add(int rank, const Group& group) {
    const auto [known, is_new] =
        ids_.try_emplace({group.lane, group.members.front()}, static_cast<int>(groups_.all.size()));
    if (is_new) groups_.all.push_back(group);
    const Group& first = groups_.all[static_cast<std::size_t>(known->second)];
    ORTHANT_CHECK(first.members == group.members,
                  "group '{}': rank {} lists {} members from rank {} on, another rank lists {}",
                  group.name, rank, group.members.size(), group.members.front(),
                  first.members.size());
    const auto at = std::lower_bound(group.members.begin(), group.members.end(), rank);
    std::vector<Seat>& seats = groups_.seats[static_cast<std::size_t>(rank)];
    seats.resize(std::max(seats.size(), index_of(group.lane) + 1));
    seats[index_of(group.lane)] = {.group = known->second,
                                   .position = static_cast<int>(at - group.members.begin())};
  }

  Groups take() { return std::move(groups_); }

 private:
  Groups groups_;
  std::map<std::pair<Lane, int>, int> ids_;  // by lane and first member
};

void mix(std::uint64_t& hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
  hash ^= hash >> 29;
}

// By kind and lane: whether it is used, and whether for messages, which depend on positions.
struct Use {
  bool is_used = false;
  bool has_messages = false;
};

std::vector<std::vector<Use>> uses_of(std::span<const Program> kinds) {
  std::vector<std::vector<Use>> uses(kinds.size());
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    for (const Instruction& instruction : kinds[kind].list) {
      if (!is_call(instruction)) continue;
      const std::size_t lane = index_of(instruction.lane);
      if (uses[kind].size() <= lane) uses[kind].resize(lane + 1);
      uses[kind][lane].is_used = true;
      uses[kind][lane].has_messages |= is_message(instruction);
    }
  }
  return uses;
}

// Numbers the classes anew by what each rank sees of the others; returns how many there are.
int refine(const Groups& groups, const std::vector<std::vector<Use>>& uses,
           std::span<const int> kind_of, std::vector<int>& class_of) {
  std::vector<std::uint64_t> seen(groups.all.size());
  for (std::size_t group = 0; group < groups.all.size(); ++group) {
    for (const int member : groups.all[group].members) {
      mix(seen[group], static_cast<std::uint64_t>(class_of[static_cast<std::size_t>(member)]) + 1);
    }
  }
  std::map<std::uint64_t, int> known;
  std::vector<int> refined(class_of.size());
  for (std::size_t rank = 0; rank < class_of.size(); ++rank) {
    auto signature = static_cast<std::uint64_t>(class_of[rank]) + 1;
    const std::vector<Use>& lanes = uses[static_cast<std::size_t>(kind_of[rank])];
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      if (!lanes[lane].is_used) continue;
      const Seat& seat =
          groups.seat(static_cast<int>(rank),
                      static_cast<Lane>(static_cast<std::size_t>(Lane::kFirstComm) + lane));
      mix(signature, lane + 1);
      mix(signature, seen[static_cast<std::size_t>(seat.group)]);
      if (lanes[lane].has_messages) mix(signature, static_cast<std::uint64_t>(seat.position) + 1);
    }
    refined[rank] = known.emplace(signature, static_cast<int>(known.size())).first->second;
  }
  class_of = std::move(refined);
  return static_cast<int>(known.size());
}

}  // namespace

const Seat& Groups::seat(int rank, Lane lane) const {
  const std::vector<Seat>& mine = seats[static_cast<std::size_t>(rank)];
  ORTHANT_CHECK(index_of(lane) < mine.size() && mine[index_of(lane)].group >= 0,
                "rank {} has no communicator {}", rank, index_of(lane));
  return mine[index_of(lane)];
}

Lane lane_of(const Groups& groups, int rank, std::string_view name) {
  for (const Seat& seat : groups.seats[static_cast<std::size_t>(rank)]) {
    if (seat.group < 0) continue;
    const Group& group = groups.all[static_cast<std::size_t>(seat.group)];
    if (group.name == name) return group.lane;
  }
  fail_run("rank {} has no group '{}'", rank, name);
}

Groups make_groups(const RankConfig& config) {
  const MeshShape shape = mesh_shape(config.layout);
  GroupTable table(shape.ranks());
  std::vector<int> world(static_cast<std::size_t>(shape.ranks()));
  std::iota(world.begin(), world.end(), 0);
  for (int rank = 0; rank < shape.ranks(); ++rank) {
    Ledger ledger;
    InFlight in_flight;
    std::vector<Group> made = {{.lane = Lane::kFirstComm, .name = "world", .members = world}};
    Recorder recorder("world", world, rank, 0, {.ledger = ledger, .in_flight = in_flight}, made);
    const Mesh mesh(shape, recorder, kv_copies(config.model, config.layout));
    for (const Group& group : made) {
      table.add(rank, group);
    }
  }
  return table.take();
}

Classes find_classes(const Groups& groups, std::span<const Program> kinds,
                     std::span<const int> kind_of) {
  const std::vector<std::vector<Use>> uses = uses_of(kinds);
  Classes classes;
  classes.class_of.assign(kind_of.begin(), kind_of.end());
  for (int before = 0, now = -1; now != before;) {
    before = now;
    now = refine(groups, uses, kind_of, classes.class_of);
  }
  for (std::size_t rank = 0; rank < classes.class_of.size(); ++rank) {
    const auto own = static_cast<std::size_t>(classes.class_of[rank]);
    if (own == classes.ranks.size()) classes.ranks.push_back(static_cast<int>(rank));
  }
  return classes;
}

}  // namespace orthant
