// Each class goes on until it has to wait, in turn, until all have ended or all wait. Who goes
// first does not matter: a rank waits for a certain call, never for any of several.
#include "plan/timeline.h"

#include <algorithm>

#include "base/check.h"

namespace orthant {
namespace {

// Calls of one class that complete in the order in which they were started.
struct Queue {
  struct Started {
    std::int32_t index;  // in Program::list
    double time;
  };
  std::vector<Started> calls;
  std::size_t head = 0;
  double free_at = 0;  // when the call before the head has completed
  bool is_empty() const { return head == calls.size(); }
};

// Where the sides of a call meet: all classes of a group, or the two ends of an ordered pair.
struct Meeting {
  struct Side {
    int who;    // class
    int queue;  // of that class
  };
  std::vector<int> wanted;  // classes
  std::vector<Side> arrived;
};

constexpr double kOpen = -1;  // a call that has not completed

class Runner {
 public:
  Runner(const World& world, const Classes& classes, LaneOrder order, const Durations& durations,
         const std::function<void(const Event&)>& observe)
      : world_(world),
        classes_(classes),
        order_(order),
        durations_(durations),
        observe_(observe),
        runs_(classes.ranks.size()) {
    result_.classes.resize(runs_.size());
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      Run& run = runs_[i];
      run.rank = classes.ranks[i];
      run.list = &world.of(run.rank).list;
      run.ends.assign(run.list->size(), kOpen);
      work_.push_back(static_cast<int>(i));
    }
  }

  Timeline run() {
    while (!work_.empty()) {
      const int who = work_.back();
      work_.pop_back();
      advance(who);
    }
    for (std::size_t i = 0; i < runs_.size() && result_.deadlock.empty(); ++i) {
      if (!has_ended(runs_[i])) result_.deadlock = explain(static_cast<int>(i));
      finish(static_cast<int>(i));
    }
    return std::move(result_);
  }

 private:
  struct Run {
    int rank;
    const std::vector<Instruction>* list;
    std::size_t next = 0;
    double now = 0;            // of what it computes
    std::vector<double> ends;  // by instruction: when the call completed
    std::vector<Queue> queues;
    // By lane, then by channel; -1: not known yet.
    std::vector<std::vector<int>> queue_ids;
    std::vector<std::vector<int>> meeting_ids;
    std::vector<double> free_at;  // by lane: when its copies or works are over
    std::vector<double> waits;    // by lane
  };

  static bool has_ended(const Run& run) { return run.next == run.list->size(); }
  Run& at(int who) { return runs_[static_cast<std::size_t>(who)]; }
  const Run& at(int who) const { return runs_[static_cast<std::size_t>(who)]; }
  Timeline::Times& times(int who) { return result_.classes[static_cast<std::size_t>(who)]; }

  void finish(int who) {
    const Run& run = at(who);
    result_.makespan = std::max(result_.makespan, run.now);
    for (std::size_t lane = 0; lane < run.waits.size(); ++lane) {
      if (run.waits[lane] == 0) continue;
      times(who).waits[lane_name(run.rank, static_cast<Lane>(lane))] += run.waits[lane];
    }
  }

  void tell(int who, std::size_t index, double begin, double end) const {
    if (observe_) observe_({who, static_cast<std::int32_t>(index), begin, end});
  }

  void advance(int who) {
    Run& run = at(who);
    for (; !has_ended(run); ++run.next) {
      const Instruction& instruction = (*run.list)[run.next];
      switch (instruction.kind) {
        case Instruction::Kind::kCompute: compute(who, instruction); break;
        case Instruction::Kind::kStart:
          is_call(instruction) ? start(who) : copy(who, instruction);
          break;
        case Instruction::Kind::kWait:
          if (!wait(who, instruction)) return;
      }
    }
  }

  void compute(int who, const Instruction& stretch) {
    if (durations_.stretches.empty()) return;
    Run& run = at(who);
    const double seconds = durations_.stretches[static_cast<std::size_t>(stretch.link)];
    tell(who, run.next, run.now, run.now + seconds);
    run.now += seconds;
    times(who).compute += seconds;
  }

  // False: the call has not completed.
  bool wait(int who, const Instruction& instruction) {
    Run& run = at(who);
    const double end = run.ends[static_cast<std::size_t>(instruction.link)];
    if (end == kOpen) return false;
    if (end > run.now) {
      at_lane(run.waits, instruction.lane) += end - run.now;
      tell(who, run.next, run.now, end);
      run.now = end;
    }
    return true;
  }

  // Grows the list to have it.
  template <class Value>
  static Value& at_lane(std::vector<Value>& by_lane, Lane lane) {
    const auto index = static_cast<std::size_t>(lane);
    if (by_lane.size() <= index) by_lane.resize(index + 1);
    return by_lane[index];
  }

  std::string lane_name(int rank, Lane lane) const {
    if (lane == Lane::kHost) return "host";
    if (lane == Lane::kBeside) return "updates";
    if (lane < Lane::kFirstComm) return "copies";
    const Seat& seat = world_.groups.seat(rank, lane);
    return world_.groups.all[static_cast<std::size_t>(seat.group)].name;
  }

  void copy(int who, const Instruction& instruction) {
    Run& run = at(who);
    double& free_at = at_lane(run.free_at, instruction.lane);
    double begin = std::max(free_at, run.now);
    for (const std::int32_t before : instruction.after) {
      if (before >= 0) begin = std::max(begin, run.ends[static_cast<std::size_t>(before)]);
    }
    free_at = begin + (durations_.copy ? durations_.copy(instruction) : 0);
    run.ends[run.next] = free_at;
    tell(who, run.next, begin, free_at);
  }

  void start(int who) {
    Run& run = at(who);
    const int queue = queue_of(run, (*run.list)[run.next]);
    Queue& mine = run.queues[static_cast<std::size_t>(queue)];
    mine.calls.push_back({static_cast<std::int32_t>(run.next), run.now});
    if (mine.calls.size() == mine.head + 1) arrive({.who = who, .queue = queue});
  }

  // The head of a queue comes to its meeting; a full meeting lets the next heads come to theirs.
  void arrive(Meeting::Side side) {
    std::vector<Meeting::Side> heads = {side};
    while (!heads.empty()) {
      const Meeting::Side head = heads.back();
      heads.pop_back();
      Meeting& meeting = meeting_of(head);
      meeting.arrived.push_back(head);
      if (meeting.arrived.size() < meeting.wanted.size()) continue;
      const std::vector<Meeting::Side> all = std::exchange(meeting.arrived, {});
      double begin = 0;
      for (const Meeting::Side& met : all) {
        const Queue& queue = queue_at(met);
        begin = std::max({begin, queue.calls[queue.head].time, queue.free_at});
      }
      const double end = begin + duration(all.front());
      for (const Meeting::Side& met : all) {
        complete(met, begin, end);
        if (!queue_at(met).is_empty()) heads.push_back(met);
      }
    }
  }

  double duration(const Meeting::Side& side) const {
    if (!durations_.call) return 0;
    const Instruction& call = head_of(side);
    const int rank = at(side.who).rank;
    const Seat& seat = world_.groups.seat(rank, call.lane);
    return durations_.call(call, world_.groups.all[static_cast<std::size_t>(seat.group)], rank);
  }

  void complete(const Meeting::Side& side, double begin, double end) {
    Run& run = at(side.who);
    Queue& queue = queue_at(side);
    const std::int32_t call = queue.calls[queue.head++].index;
    queue.free_at = end;
    run.ends[static_cast<std::size_t>(call)] = end;
    tell(side.who, static_cast<std::size_t>(call), begin, end);
    if (has_ended(run)) return;
    const Instruction& next = (*run.list)[run.next];
    if (next.kind == Instruction::Kind::kWait && next.link == call) work_.push_back(side.who);
  }

  // What distinguishes the queues of a lane: 0 collectives, then a number for each ordered pair.
  static int channel_of(const Instruction& call) {
    if (!is_message(call)) return 0;
    return 1 + 2 * call.peer + (call.what == "send" ? 0 : 1);
  }

  int queue_of(Run& run, const Instruction& call) const {
    const int channel = order_ == LaneOrder::kInOrder ? 0 : channel_of(call);
    int& id = id_at(run.queue_ids, call.lane, channel);
    if (id < 0) {
      id = static_cast<int>(run.queues.size());
      run.queues.emplace_back();
    }
    return id;
  }

  static int& id_at(std::vector<std::vector<int>>& ids, Lane lane, int channel) {
    std::vector<int>& mine = at_lane(ids, lane);
    const auto index = static_cast<std::size_t>(channel);
    if (mine.size() <= index) mine.resize(index + 1, -1);
    return mine[index];
  }

  Queue& queue_at(const Meeting::Side& side) {
    return at(side.who).queues[static_cast<std::size_t>(side.queue)];
  }
  const Instruction& head_of(const Meeting::Side& side) const {
    const Queue& queue = at(side.who).queues[static_cast<std::size_t>(side.queue)];
    return (*at(side.who).list)[static_cast<std::size_t>(queue.calls[queue.head].index)];
  }

  Meeting& meeting_of(const Meeting::Side& side) {
    Run& run = at(side.who);
    const Instruction& call = head_of(side);
    int& id = id_at(run.meeting_ids, call.lane, channel_of(call));
    if (id < 0) id = find_meeting(run.rank, call);
    return meetings_[static_cast<std::size_t>(id)];
  }

  // Groups of the same classes have one meeting.
  int find_meeting(int rank, const Instruction& call) {
    const Seat& seat = world_.groups.seat(rank, call.lane);
    std::vector<int> key = {static_cast<int>(call.lane)};
    std::vector<int> wanted;
    for (const int member : world_.groups.all[static_cast<std::size_t>(seat.group)].members) {
      wanted.push_back(classes_.class_of[static_cast<std::size_t>(member)]);
    }
    key.insert(key.end(), wanted.begin(), wanted.end());
    if (is_message(call)) {
      const bool sends = call.what == "send";
      const int from = sends ? seat.position : call.peer;
      const int to = sends ? call.peer : seat.position;
      key.insert(key.end(), {-1, from, to});
      wanted = {wanted.at(static_cast<std::size_t>(from)), wanted.at(static_cast<std::size_t>(to))};
    } else {
      std::sort(wanted.begin(), wanted.end());
      wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
    }
    const auto [known, is_new] =
        known_meetings_.try_emplace(std::move(key), static_cast<int>(meetings_.size()));
    if (is_new) meetings_.push_back({.wanted = std::move(wanted), .arrived = {}});
    return known->second;
  }

  // Follows who waits for whom until a rank comes twice or one has nothing left to do.
  std::string explain(int who) {
    std::string text;
    std::vector<int> seen;
    while (!has_ended(at(who)) && std::find(seen.begin(), seen.end(), who) == seen.end()) {
      seen.push_back(who);
      const Run& run = at(who);
      const Instruction& wait = (*run.list)[run.next];
      const Instruction& call = (*run.list)[static_cast<std::size_t>(wait.link)];
      const Meeting::Side side = {.who = who, .queue = queue_of(at(who), call)};
      const Instruction& head = head_of(side);
      const int other = missing(meeting_of(side));
      text +=
          fmt::format("{}rank {} at {} waits for its {} of {}", text.empty() ? "" : "; ", run.rank,
                      place_text(world_.tables, wait), call.what, place_text(world_.tables, call));
      if (&head != &call) {
        text += fmt::format(", which comes after its {} of {}", head.what,
                            place_text(world_.tables, head));
      }
      text += fmt::format(", to which rank {} has not come in group '{}'", at(other).rank,
                          lane_name(run.rank, head.lane));
      who = other;
    }
    if (has_ended(at(who))) {
      text += fmt::format("; rank {} is at the end of its step", at(who).rank);
    }
    return text;
  }

  static int missing(const Meeting& meeting) {
    for (const int who : meeting.wanted) {
      const bool is_here =
          std::any_of(meeting.arrived.begin(), meeting.arrived.end(),
                      [who](const Meeting::Side& side) { return side.who == who; });
      if (!is_here) return who;
    }
    fail_run("timeline: everyone has come, and nobody goes on");
  }

  const World& world_;
  const Classes& classes_;
  LaneOrder order_;
  const Durations& durations_;
  const std::function<void(const Event&)>& observe_;
  std::vector<Run> runs_;  // by class
  std::vector<Meeting> meetings_;
  std::map<std::vector<int>, int> known_meetings_;
  std::vector<int> work_;  // classes that may go on
  Timeline result_;
};

}  // namespace

Timeline run_timeline(const World& world, const Classes& classes, LaneOrder order,
                      const Durations& durations,
                      const std::function<void(const Event&)>& observe) {
  return Runner(world, classes, order, durations, observe).run();
}

}  // namespace orthant
