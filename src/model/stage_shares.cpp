// How the shares of a micro-batch go through the layers of a stage: the whole of it, or halves that
// take turns.
#include <string_view>

#include "base/check.h"
#include "model/stage.h"

namespace orthant {

// Only a training has halves. Those of rows that tp ranks have in part are again such parts.
std::vector<ModelStage::Share> ModelStage::shares_of(Slots::Slot& slot) {
  const bool takes_turns = turns_ && run_.mode == Mode::kTrain;
  const std::size_t count = takes_turns ? slot.stashes.size() : 1;
  std::vector<Share> shares;
  shares.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    MicroBatch micro = slot.batch;
    if (takes_turns) {
      micro.B /= static_cast<std::int64_t>(count);
      for (Tensor* tensor : {&micro.tokens, &micro.labels, &micro.positions, &micro.sample_ids}) {
        *tensor = rows_of(*tensor, i);
      }
    }
    shares.push_back({.ctx = {.ops = parts_.ops,
                              .mesh = parts_.mesh,
                              .work = *parts_.works[i],
                              .constants = parts_.constants,
                              .step_state = parts_.step_state,
                              .mode = run_.mode,
                              .micro = micro,
                              .again = &agains_[i],
                              .give_midway = takes_turns ? &give_midway_ : nullptr},
                      .stash = slot.stashes[i]});
  }
  return shares;
}

// Of a tensor with all rows of a micro-batch, which may be absent.
Tensor ModelStage::rows_of(const Tensor& whole, std::size_t share) const {
  if (whole.absent() || !turns_ || run_.mode != Mode::kTrain) return whole;
  const std::int64_t half = whole.shape[0] / Turns::kBodies;
  return whole.rows(static_cast<std::int64_t>(share) * half, half);
}

// The other share may be in another layer.
bool ModelStage::give_turn() {
  const Where here(parts_.ledger, parts_.ledger.where());
  return turns_->give();
}

Shape ModelStage::rows_of(const Shape& whole, const Pass& pass) {
  return whole.with(0, whole[0] / static_cast<std::int64_t>(pass.shares.size()));
}

// act(i) of each share: in turns where there are two.
void ModelStage::for_shares(const Pass& pass, const std::function<void(std::size_t)>& act) {
  if (pass.shares.size() == 1) return act(std::size_t{0});
  const std::string_view where = parts_.ledger.where();
  const Where after(parts_.ledger, where);
  turns_->run([&](int body) {
    const Where here(parts_.ledger, where);
    act(static_cast<std::size_t>(body));
  });
}

// The first share comes first, so that gradients are added in its order. Where units have memory
// only while they are at work, or stashes leave, it stays in a layer until both have ended it.
bool ModelStage::comes_first(Pass& pass, std::size_t share, int layer, int before) {
  const bool keeps_together = parts_.offload != nullptr || parts_.store.takes_units_in_turn();
  const int count = static_cast<int>(pass.shares.size());
  const auto at = [&](int i) -> Visits& {
    return pass.visits[static_cast<std::size_t>(i)];
  };
  constexpr int kMostTurns = 10000;  // more than a layer has waits
  for (int i = 0;
       share > 0 ? at(layer).begun == 0 : keeps_together && before >= 0 && at(before).ended < count;
       ++i) {
    ORTHANT_CHECK(i < kMostTurns && give_turn(), "half a micro-batch waits for the other in vain");
  }
  return at(layer).begun++ == 0;
}

bool ModelStage::goes_last(Pass& pass, int layer) {
  Visits& visits = pass.visits[static_cast<std::size_t>(layer)];
  return ++visits.ended == static_cast<int>(pass.shares.size());
}

}  // namespace orthant
