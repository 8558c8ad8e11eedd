// lower(): adds the messages to the compute actions.
//
// What a lowered list means, here, in simulate() and in the interpreter. A rank goes through it in
// order:
//   recv     posts the receive into the one buffer of its kind and chunk, and goes on at once. The
//            buffer is full from then on until its reader has returned.
//   compute  waits until the last send of what it will write has ended, then until its own receive
//            has arrived, and runs. It reads its boundary buffer and writes the other one.
//   send     starts the send of what the compute action before it wrote, and goes on at once. It
//            ends when its receive has been posted.
// At the end of the list the rank waits for the sends that are left. Between two chunks of one rank
// there are no messages.
//
// Calls of an ordered pair of ranks and one cargo may run in their order, those of different pairs
// must not wait for each other: where parts of a rank send in both directions, ranks whose calls
// all stand in one queue could wait for ever.
//
// A rank's list is: compute, its send, the receives of this gap, the next compute, and so on. The
// send comes before the receives: no result waits behind the next input. A receive lies in the gap
// one compute action ahead of its reader, or later when the buffer's last reader is that action.
// Two chunks of a rank may hear from the same rank: messages of a pair arrive in the order in which
// they were sent, so a receive moves when a later message of its pair is read first.
#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/check.h"
#include "pipeline/boundary.h"
#include "pipeline/schedule.h"

namespace orthant {
namespace {

struct Receive {
  Action action;
  Cargo cargo;
  int source;    // rank
  int sent;      // place of the action that writes it in the source's list
  int earliest;  // gap g lies before compute action g
  int gap;
};

void check_chunks(const RankActions& actions, const Placement& placement, int rank) {
  for (const Action& action : actions) {
    if (action.chunk >= 0 && action.chunk < placement.num_chunks(rank)) continue;
    throw ScheduleError(rank, fmt::format("schedule: rank {} at {}: the rank has {} chunks", rank,
                                          to_text({action}), placement.num_chunks(rank)));
  }
}

// The place in a rank's compute list of the action that writes a boundary tensor.
class Writers {
 public:
  Writers(const RankActions& actions, const Placement& placement, int rank, int num_micros)
      : num_chunks_(placement.num_chunks(rank)),
        num_micros_(num_micros),
        places_(static_cast<std::size_t>(kNumCargos * num_chunks_ * num_micros), kNowhere) {
    int place = 0;
    for (const Action& action : actions) {
      if (const auto to = written_by(action, placement, rank)) {
        int& known = places_[index(to->cargo, action.chunk, action.micro)];
        known = std::min(known, place);
      }
      ++place;
    }
  }
  // A schedule that lacks the writer is simulate()'s to refuse: it is then as if written last.
  int place_of(Cargo cargo, int chunk, int micro) const {
    return places_[index(cargo, chunk, micro)];
  }

 private:
  static constexpr int kNowhere = std::numeric_limits<int>::max();
  std::size_t index(Cargo cargo, int chunk, int micro) const {
    const int row = static_cast<int>(cargo) * num_chunks_ + chunk;
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(num_micros_) +
           static_cast<std::size_t>(micro);
  }

  int num_chunks_;
  int num_micros_;
  std::vector<int> places_;
};

// The receives of a rank, in the order of their readers, each in the gap that suits its reader.
std::vector<Receive> receives_of(const RankActions& actions, const std::vector<Writers>& writers,
                                 const Placement& placement, int rank) {
  std::array<std::vector<int>, kNumCargos> free_from;  // per chunk: the gap after the last reader
  for (std::vector<int>& gaps : free_from) {
    gaps.assign(static_cast<std::size_t>(placement.num_chunks(rank)), 0);
  }
  std::vector<Receive> receives;
  for (int i = 0; i < static_cast<int>(actions.size()); ++i) {
    const Action& reader = actions[static_cast<std::size_t>(i)];
    const auto from = read_by(reader, placement, rank);
    if (!from || from->is_local) continue;
    int& earliest =
        free_from[static_cast<std::size_t>(from->cargo)][static_cast<std::size_t>(reader.chunk)];
    receives.push_back({.action = {recv_of(from->cargo), reader.chunk, reader.micro},
                        .cargo = from->cargo,
                        .source = from->peer.rank,
                        .sent = writers[static_cast<std::size_t>(from->peer.rank)].place_of(
                            from->cargo, from->peer.chunk, reader.micro),
                        .earliest = earliest,
                        .gap = std::max(i - 1, earliest)});
    earliest = i + 1;
  }
  return receives;
}

bool sent_before(const Receive& a, const Receive& b) {
  if (a.cargo != b.cargo) return a.cargo < b.cargo;
  return std::pair(a.source, a.sent) < std::pair(b.source, b.sent);
}

bool of_one_pair(const Receive& a, const Receive& b) {
  return a.cargo == b.cargo && a.source == b.source;
}

// Messages of a pair are received in the order in which they are sent: what is sent earlier moves
// ahead as far as its buffer is free, what is sent later follows it.
void respect_order(std::vector<Receive>& receives) {
  std::stable_sort(receives.begin(), receives.end(), sent_before);
  for (std::size_t i = receives.size(); i-- > 1;) {
    Receive& earlier = receives[i - 1];
    const Receive& later = receives[i];
    if (!of_one_pair(earlier, later)) continue;
    earlier.gap = std::max(earlier.earliest, std::min(earlier.gap, later.gap));
  }
  for (std::size_t i = 1; i < receives.size(); ++i) {
    const Receive& earlier = receives[i - 1];
    Receive& later = receives[i];
    if (of_one_pair(earlier, later)) later.gap = std::max(later.gap, earlier.gap);
  }
  std::stable_sort(receives.begin(), receives.end(),
                   [](const Receive& a, const Receive& b) { return a.gap < b.gap; });
}

}  // namespace

Schedule lower(const Schedule& compute, const Placement& placement) {
  ORTHANT_CHECK(static_cast<int>(compute.size()) == placement.num_ranks(),
                "lower: the schedule has {} ranks, the placement {}", compute.size(),
                placement.num_ranks());
  const int num_micros = count_micros(compute);
  for (int rank = 0; rank < placement.num_ranks(); ++rank) {
    check_chunks(compute[static_cast<std::size_t>(rank)], placement, rank);
  }
  std::vector<Writers> writers;
  for (int rank = 0; rank < placement.num_ranks(); ++rank) {
    writers.emplace_back(compute[static_cast<std::size_t>(rank)], placement, rank, num_micros);
  }
  Schedule lowered(compute.size());
  for (int rank = 0; rank < placement.num_ranks(); ++rank) {
    const RankActions& actions = compute[static_cast<std::size_t>(rank)];
    RankActions& out = lowered[static_cast<std::size_t>(rank)];
    std::vector<Receive> receives = receives_of(actions, writers, placement, rank);
    respect_order(receives);
    auto next = receives.begin();
    for (int i = 0; i < static_cast<int>(actions.size()); ++i) {
      const Action& action = actions[static_cast<std::size_t>(i)];
      for (; next != receives.end() && next->gap <= i; ++next) {
        out.push_back(next->action);
      }
      out.push_back(action);
      if (const auto to = written_by(action, placement, rank); to && !to->is_local) {
        out.push_back({send_of(to->cargo), action.chunk, action.micro});
      }
    }
  }
  return lowered;
}

}  // namespace orthant
