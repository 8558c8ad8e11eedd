// Replay: a lowered schedule of all ranks run in virtual time, with the meaning that lower.cpp
// states and messages that take no time. simulate() and bubble() are two readings of it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/boundary.h"
#include "pipeline/schedule.h"

namespace orthant {

struct ActionTimes {
  double forward;
  double backward;  // both halves
  double backward_input;
  double backward_weight;
};

class Replay {
 public:
  Replay(const Schedule& lowered, const Placement& placement, const ActionTimes& times);
  void run();  // throws when a rank can never go on or does what the list's meaning forbids

  double makespan() const;
  double busy() const { return busy_; }  // summed over the ranks

 private:
  static constexpr int kNone = -1;
  struct End {
    Action action;
    double time;
  };
  // An ordered pair of ranks and a cargo: the k-th send and the k-th receive belong together.
  struct Channel {
    std::vector<End> sends;
    std::vector<End> receives;
  };
  // A boundary buffer. Incoming: `micro` is posted or, from a chunk of the same rank, written, and
  // not read yet. Outgoing: `micro` is being sent, `written` waits for its send.
  struct Buffer {
    int micro = kNone;
    int written = kNone;
    std::size_t index = 0;  // of the message in its channel
  };
  using Buffers = std::array<std::vector<Buffer>, kNumCargos>;  // by chunk
  struct Rank {
    int next = 0;
    double time = 0;
    Buffers incoming;
    Buffers outgoing;
  };

  bool advance(int rank);  // one action; false when the rank waits or has ended
  void send(int rank, const Action& action);
  void receive(int rank, const Action& action);
  bool compute(int rank, const Action& action);
  void check_output(int rank, const Action& action, const Crossing& to);
  void check_input(int rank, const Action& action, const Crossing& from);
  // When the action may start as far as that buffer goes; nothing while it has to wait.
  std::optional<double> output_free(int rank, const Action& action, const Crossing& to);
  std::optional<double> input_full(int rank, const Action& action, const Crossing& from);
  void check_pair(int rank, Cargo cargo, int source, int target, std::size_t index);
  void check_ended(int rank);
  double time_of(Action::Kind kind) const;

  bool has_ended(int rank) const;
  const Action& next_of(int rank) const;
  std::string why_stuck(int rank);
  std::string what_about(int peer, const Action& wanted) const;
  [[noreturn]] void fail(int rank, std::string_view what) const;
  [[noreturn]] void fail_stuck();
  std::string grid_now() const;

  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  const Rank& at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  const RankActions& list(int rank) const { return lowered_[static_cast<std::size_t>(rank)]; }
  Channel& channel(Cargo cargo, int source, int target);
  static Buffer& at(Buffers& buffers, Cargo cargo, int chunk) {
    return buffers[static_cast<std::size_t>(cargo)][static_cast<std::size_t>(chunk)];
  }

  const Schedule& lowered_;
  const Placement& placement_;
  ActionTimes times_;
  double busy_ = 0;
  std::vector<Rank> ranks_;
  std::vector<Channel> channels_;
};

// All ranks' actions, a line each, with ">F3<" at each rank's place; a place at the end of a list
// is
// "> <", one below 0 is not shown. Actions far from the place are only counted.
std::string grid(const Schedule& schedule, const std::vector<int>& places);

}  // namespace orthant
