// interleaved: 1f1b over several parts a rank, in groups of as many micro-batches as ranks, after
// Narayanan et al., "Efficient large-scale language model training on GPU clusters using
// Megatron-LM" (SC 2021). The pipeline fills in the time of a part, not of a whole stage.
//
// The lists are made for the next multiple of `ranks` micro-batches; what is not there is left out.
// An order in which all can run stays one without some of the micro-batches.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "pipeline/schedule.h"

namespace orthant {
namespace {

// The chunk and micro-batch of a rank's k-th forward: a group of micro-batches goes through one
// chunk after the other.
std::pair<int, int> forward_at(int k, int ranks, int chunks) {
  const int round = k / (ranks * chunks);
  const int chunk = k / ranks % chunks;
  return {chunk, round * ranks + k % ranks};
}

}  // namespace

Schedule interleaved(int ranks, int chunks, int micros) {
  ORTHANT_CHECK(ranks > 0 && chunks > 0 && micros > 0,
                "schedule: {} ranks, {} chunks and {} micro-batches; all are >= 1", ranks, chunks,
                micros);
  if (chunks == 1) return one_f_one_b(ranks, micros);
  const int total = (micros + ranks - 1) / ranks * ranks * chunks;
  Schedule schedule(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    RankActions& actions = schedule[static_cast<std::size_t>(rank)];
    const auto add = [&](Action::Kind kind, int k) {
      const auto [chunk, micro] = forward_at(k, ranks, chunks);
      const bool forward = kind == Action::Kind::kForward;
      if (micro < micros) actions.push_back({kind, forward ? chunk : chunks - 1 - chunk, micro});
    };
    const int ahead = std::min(total, 2 * (ranks - rank - 1) + (chunks - 1) * ranks);
    for (int k = 0; k < ahead; ++k) {
      add(Action::Kind::kForward, k);
    }
    for (int k = 0; k < total; ++k) {
      if (k + ahead < total) add(Action::Kind::kForward, k + ahead);
      add(Action::Kind::kBackward, k);
    }
  }
  return schedule;
}

}  // namespace orthant
