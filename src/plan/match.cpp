#include "plan/match.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"
#include "train/run_schedule.h"

namespace orthant {
namespace {

constexpr int kMaxMismatches = 16;

void mix(std::uint64_t& hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
  hash ^= hash >> 29;
}

// What both sides of a call must agree on; `place` besides for collectives, which all ranks of a
// group reach at the same place of the model.
std::uint64_t essence(const Instruction& call) {
  std::uint64_t hash = call.fingerprint;
  mix(hash, static_cast<std::uint64_t>(call.bytes));
  mix(hash, static_cast<std::uint64_t>(call.group_size));
  if (is_message(call)) return hash;
  mix(hash, static_cast<std::uint64_t>(call.peer) + 1);  // the root
  mix(hash, call.what.size() * 256 + static_cast<unsigned char>(call.what.front()));
  mix(hash, static_cast<std::uint64_t>(call.place) + 1);
  mix(hash,
      static_cast<std::uint64_t>(call.at.micro) * 256 + static_cast<unsigned char>(call.at.kind));
  return hash;
}

// Calls of one program that must meet those of another: a group's collectives, or the messages to
// or from one peer.
struct Sequence {
  std::vector<std::int32_t> calls;  // in Program::list
  std::uint64_t hash = 0;

  void add(std::int32_t index, const Instruction& call) {
    calls.push_back(index);
    mix(hash, essence(call));
  }
};

// By kind. Messages are of an ordered pair: peer is a group rank.
struct Sequences {
  std::map<Lane, Sequence> collectives;
  std::map<std::pair<Lane, int>, Sequence> sends;
  std::map<std::pair<Lane, int>, Sequence> receives;
};

Sequences sequences_of(const Program& program) {
  Sequences all;
  for (std::size_t i = 0; i < program.list.size(); ++i) {
    const Instruction& call = program.list[i];
    if (!is_call(call)) continue;
    Sequence& sequence = call.what == "send"   ? all.sends[{call.lane, call.peer}]
                         : call.what == "recv" ? all.receives[{call.lane, call.peer}]
                                               : all.collectives[call.lane];
    sequence.add(static_cast<std::int32_t>(i), call);
  }
  return all;
}

// One side of a comparison.
struct Side {
  int rank;
  const Sequence* sequence;
  bool is_message;
  std::size_t size() const { return sequence->calls.size(); }
};

class Matcher {
 public:
  Matcher(const World& world, const Classes& classes) : world_(world), classes_(classes) {
    for (const Program& program : world.kinds) {
      sequences_.push_back(sequences_of(program));
    }
    for (const int kind : world.kind_of) {
      const Sequences& own = sequences_[static_cast<std::size_t>(kind)];
      for (const auto& [lane, sequence] : own.collectives) {
        ++num_ranks_with_[sequence.hash];
      }
      for (const auto* messages : {&own.sends, &own.receives}) {
        for (const auto& [key, sequence] : *messages) {
          ++num_ranks_with_[sequence.hash];
        }
      }
    }
  }

  std::vector<Mismatch> run() {
    for (const Group& group : world_.groups.all) {
      if (static_cast<int>(found_.size()) >= kMaxMismatches) break;
      if (group.members.size() > 1 && is_new(group)) check(group);
    }
    return std::move(found_);
  }

 private:
  // Groups of the same classes agree in the same way.
  bool is_new(const Group& group) {
    std::vector<int> key = {static_cast<int>(group.lane)};
    for (const int member : group.members) {
      key.push_back(classes_.class_of[static_cast<std::size_t>(member)]);
    }
    return checked_.insert(std::move(key)).second;
  }

  const Sequences& of(int rank) const {
    return sequences_[static_cast<std::size_t>(world_.kind_of[static_cast<std::size_t>(rank)])];
  }

  template <class Key>
  const Sequence& find(const std::map<Key, Sequence>& sequences, const Key& key) const {
    const auto found = sequences.find(key);
    return found == sequences.end() ? none_ : found->second;
  }
  const Sequence& collectives(int rank, Lane lane) const {
    return find(of(rank).collectives, lane);
  }

  void check(const Group& group) {
    check_collectives(group);
    std::set<std::pair<int, int>> pairs;  // positions: from, to
    for (int position = 0; position < static_cast<int>(group.members.size()); ++position) {
      const Sequences& mine = of(group.members[static_cast<std::size_t>(position)]);
      for (const auto& [key, sequence] : mine.sends) {
        if (key.first == group.lane) pairs.emplace(position, key.second);
      }
      for (const auto& [key, sequence] : mine.receives) {
        if (key.first == group.lane) pairs.emplace(key.second, position);
      }
    }
    for (const auto& [from, to] : pairs) {
      check_messages(group, from, to);
    }
  }

  // The majority of the members is right.
  void check_collectives(const Group& group) {
    std::map<std::uint64_t, int> votes;
    for (const int rank : group.members) {
      ++votes[collectives(rank, group.lane).hash];
    }
    if (votes.size() == 1) return;
    int right = group.members.front();
    for (const int rank : group.members) {
      if (weight(votes, rank, group.lane) > weight(votes, right, group.lane)) right = rank;
    }
    const std::uint64_t wanted = collectives(right, group.lane).hash;
    std::set<std::uint64_t> told = {wanted};
    for (const int rank : group.members) {
      const Sequence& sequence = collectives(rank, group.lane);
      if (!told.insert(sequence.hash).second) continue;
      compare(group, {rank, &sequence, false}, {right, &collectives(right, group.lane), false});
    }
  }

  // Of two members alone, the one that does what fewer ranks of the world do has been changed.
  std::pair<int, int> weight(const std::map<std::uint64_t, int>& votes, int rank, Lane lane) const {
    const Sequence& sequence = collectives(rank, lane);
    return {votes.at(sequence.hash), num_ranks_with(sequence)};
  }
  int num_ranks_with(const Sequence& sequence) const {
    const auto found = num_ranks_with_.find(sequence.hash);
    return found == num_ranks_with_.end() ? 0 : found->second;
  }

  void check_messages(const Group& group, int from, int to) {
    const int source = group.members.at(static_cast<std::size_t>(from));
    const int target = group.members.at(static_cast<std::size_t>(to));
    const Sequence& sent = find(of(source).sends, {group.lane, to});
    const Sequence& received = find(of(target).receives, {group.lane, from});
    if (sent.hash == received.hash && sent.calls.size() == received.calls.size()) return;
    const Side send = {source, &sent, true};
    const Side receive = {target, &received, true};
    if (num_ranks_with(sent) <= num_ranks_with(received)) {
      compare(group, send, receive);
    } else {
      compare(group, receive, send);
    }
  }

  // Names the first place where `odd` differs from `right`.
  void compare(const Group& group, const Side& odd, const Side& right) {
    std::size_t first = 0;
    while (first < std::min(odd.size(), right.size()) && same(odd, first, right, first)) {
      ++first;
    }
    const std::size_t other = first_other_distance(odd, right, first);
    if (!odd.is_message &&
        (same_tails(odd, other, right, other + 1) || same_tails(odd, other + 1, right, other))) {
      first = other;
    }
    const bool lacks = same_tails(odd, first, right, first + 1);
    const bool has_more = same_tails(odd, first + 1, right, first);
    const std::string place = lacks && odd.is_message ? after(odd, first)
                              : lacks                 ? place_of(right, first)
                                                      : place_of(odd, first);
    const std::string what = lacks      ? fmt::format("rank {} lacks number {}, {}: {}", odd.rank,
                                                      first + 1, place, told(right, first))
                             : has_more ? fmt::format("rank {} has number {} too many: {}",
                                                      odd.rank, first + 1, told(odd, first))
                                        : fmt::format("number {} is {}, and {}", first + 1,
                                                      told(odd, first), told(right, first));
    found_.push_back(
        {.rank = odd.rank,
         .place = place,
         .what = fmt::format("group '{}': rank {} has {} calls for rank {}, which has "
                             "{} for it; {}",
                             group.name, odd.rank, odd.size(), right.rank, right.size(), what)});
  }

  const Instruction& call(const Side& side, std::size_t i) const {
    return list(side.rank)[static_cast<std::size_t>(side.sequence->calls[i])];
  }
  bool same(const Side& a, std::size_t i, const Side& b, std::size_t k) const {
    return essence(call(a, i)) == essence(call(b, k));
  }

  // a from i on is b from k on.
  bool same_tails(const Side& a, std::size_t i, const Side& b, std::size_t k) const {
    if (i > a.size() || k > b.size() || a.size() - i != b.size() - k) return false;
    for (; i < a.size(); ++i, ++k) {
      if (!same(a, i, b, k)) return false;
    }
    return true;
  }

  // Neighbours that look alike hide which of them is missing; the ops before each tell.
  std::size_t first_other_distance(const Side& a, const Side& b, std::size_t end) const {
    std::size_t i = 0;
    while (i < end && call(a, i).ops_before == call(b, i).ops_before) {
      ++i;
    }
    return i;
  }

  std::string place_of(const Side& side, std::size_t i) const {
    return i < side.size() ? place_text(world_.tables, call(side, i)) : "the end of the step";
  }
  std::string after(const Side& side, std::size_t i) const {
    return i == 0 ? "before all others" : "after " + place_of(side, i - 1);
  }
  std::string told(const Side& side, std::size_t i) const {
    if (i >= side.size()) return fmt::format("none on rank {}", side.rank);
    return fmt::format("{} of {} bytes at {} on rank {}", call(side, i).what, call(side, i).bytes,
                       place_of(side, i), side.rank);
  }

  const std::vector<Instruction>& list(int rank) const { return world_.of(rank).list; }

  const World& world_;
  const Classes& classes_;
  const Sequence none_;
  std::vector<Sequences> sequences_;             // by kind
  std::map<std::uint64_t, int> num_ranks_with_;  // by hash of a sequence
  std::set<std::vector<int>> checked_;
  std::vector<Mismatch> found_;
};

// ZeRO cuts parameters into shards without regard to where one ends: ranks along dp update, and add
// over tp what several hold, in other portions.
void add_kinds_by_shard(const RankConfig& config, World& world, const StepReader& read) {
  const LayoutConfig& layout = config.layout;
  if (layout.zero_stage == 0 || layout.dp() == 1 || layout.ranks > kMostRead) return;
  Programs programs(schedule_choice(layout));
  std::map<std::pair<int, int>, int> known;  // kind of the first of dp, place in dp
  for (int rank = 0; rank < layout.ranks; ++rank) {
    const auto coords = mesh_shape(layout).coords_of(rank);
    const int dp = coords[static_cast<std::size_t>(Axis::kDp)];
    if (dp == 0) continue;
    int& kind_of = world.kind_of[static_cast<std::size_t>(rank)];
    const auto [kind, is_new] =
        known.emplace(std::pair(kind_of, dp), static_cast<int>(world.kinds.size()));
    if (is_new) dry_run_memory(config, rank, 0, read, &programs);
    kind_of = kind->second;
  }
}

}  // namespace

DryWorld dry_world(const RankConfig& config, int num_eval_micros) {
  DryWorld dry;
  World& world = dry.world;
  const StepReader read = [&world](std::span<const Entry> step) {
    world.kinds.push_back(make_program(step, world.tables));
  };
  dry.memory = plan_run(config, num_eval_micros, read);
  world.kind_of = dry.memory.kind_of;
  add_kinds_by_shard(config, world, read);
  world.groups = make_groups(config);
  return dry;
}

MatchResult match(const World& world) {
  return match(world, find_classes(world.groups, world.kinds, world.kind_of));
}

MatchResult match(const World& world, const Classes& classes) {
  MatchResult result;
  result.mismatches = Matcher(world, classes).run();
  // What does not match cannot be replayed: a rank would wait for a call that never comes.
  if (!result.mismatches.empty()) return result;
  result.deadlock = run_timeline(world, classes, LaneOrder::kByPair, {}, {}).deadlock;
  if (result.deadlock.empty()) {
    result.in_order_deadlock = run_timeline(world, classes, LaneOrder::kInOrder, {}, {}).deadlock;
  }
  return result;
}

}  // namespace orthant
