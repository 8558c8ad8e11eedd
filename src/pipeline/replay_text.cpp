// Replay's messages: where every rank is, and which message it waits for.
#include <algorithm>

#include <fmt/core.h>

#include "base/check.h"
#include "pipeline/replay.h"

namespace orthant {
namespace {

constexpr int kShownWhole = 40;  // actions; longer lists are cut around the place
constexpr int kShownAround = 10;

std::string text_of(const Action& action) {
  return to_text({action});
}

}  // namespace

std::string grid(const Schedule& schedule, const std::vector<int>& places) {
  std::string text;
  for (std::size_t rank = 0; rank < schedule.size(); ++rank) {
    const RankActions& actions = schedule[rank];
    const int size = static_cast<int>(actions.size());
    const int place = places[rank];
    const bool whole = size <= kShownWhole;
    const int first = whole ? 0 : std::clamp(place - kShownAround, 0, size);
    const int last = whole ? size : std::clamp(place + kShownAround + 1, 0, size);
    text += fmt::format("\n  rank {}:", rank);
    if (first > 0) text += fmt::format(" ({} before)", first);
    for (int i = first; i < last; ++i) {
      const std::string word = text_of(actions[static_cast<std::size_t>(i)]);
      text += i == place ? " >" + word + "<" : " " + word;
    }
    if (last < size) text += fmt::format(" ({} after)", size - last);
    if (place == size) text += " > <";
  }
  return text;
}

std::string Replay::grid_now() const {
  std::vector<int> places;
  for (const Rank& rank : ranks_) {
    places.push_back(rank.next);
  }
  return grid(lowered_, places);
}

void Replay::fail(int rank, std::string_view what) const {
  const std::string where = has_ended(rank) ? "at its end" : "at " + text_of(next_of(rank));
  throw ScheduleError(rank,
                      fmt::format("schedule: rank {} {}: {}{}", rank, where, what, grid_now()));
}

// What the rank that owes the other end of a message does about it.
std::string Replay::what_about(int peer, const Action& wanted) const {
  const RankActions& actions = list(peer);
  const auto rest = actions.begin() + at(peer).next;
  if (std::find(rest, actions.end(), wanted) != actions.end()) {
    return fmt::format("which is at {}", text_of(next_of(peer)));
  }
  if (std::find(actions.begin(), rest, wanted) != rest) {
    return "which had it at another place of their order";
  }
  return "which never has it";
}

std::string Replay::why_stuck(int rank) {
  // At the end of a list every send that is left may be the one; before that, the next action's.
  std::vector<Action> writers;
  if (has_ended(rank)) {
    for (int chunk = 0; chunk < placement_.num_chunks(rank); ++chunk) {
      writers.push_back({Action::Kind::kForward, chunk, 0});
      writers.push_back({Action::Kind::kBackward, chunk, 0});
    }
  } else {
    writers.push_back(next_of(rank));
  }
  for (const Action& writer : writers) {
    const auto to = written_by(writer, placement_, rank);
    if (!to || output_free(rank, writer, *to)) continue;
    const int micro = at(at(rank).outgoing, to->cargo, writer.chunk).micro;
    const Action wanted{recv_of(to->cargo), to->peer.chunk, micro};
    return fmt::format("{} waits for {} of rank {}, {}",
                       text_of({send_of(to->cargo), writer.chunk, micro}), text_of(wanted),
                       to->peer.rank, what_about(to->peer.rank, wanted));
  }
  if (has_ended(rank)) return "";
  const auto from = read_by(next_of(rank), placement_, rank);
  if (!from || input_full(rank, next_of(rank), *from)) return "";
  const Action wanted{send_of(from->cargo), from->peer.chunk, next_of(rank).micro};
  return fmt::format("{} waits for {} of rank {}, {}", text_of(next_of(rank)), text_of(wanted),
                     from->peer.rank, what_about(from->peer.rank, wanted));
}

void Replay::fail_stuck() {
  std::string reasons;
  int first = 0;
  for (int rank = placement_.num_ranks() - 1; rank >= 0; --rank) {
    const std::string why = why_stuck(rank);
    if (why.empty()) continue;
    first = rank;
    reasons.insert(0, fmt::format("\n  rank {}: {}", rank, why));
  }
  throw ScheduleError(first, fmt::format("schedule: these ranks can never go on{}\nall ranks, "
                                         "> < where each is{}",
                                         reasons, grid_now()));
}

}  // namespace orthant
