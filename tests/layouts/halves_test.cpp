// Halves of micro-batches that take turns train the bits of micro-batches of half the size, where
// one dp rank has the same samples in the same order.
#include <algorithm>
#include <functional>

#include <gtest/gtest.h>

#include "tests/support/small_training.h"

namespace orthant::test {
namespace {

using Change = std::function<void(LayoutConfig&)>;

void expect_bits_of_smaller_micro_batches(const Case& c, int tp, int pp, std::int64_t micro_batch,
                                          const Change& change = {}) {
  Training whole = training_of(c, tp, pp, 1, micro_batch / 2);
  Training halves = training_of(c, tp, pp, 1, micro_batch);
  halves.config.layout.tp_overlap = "halves";
  for (Training* training : {&whole, &halves}) {
    if (change) change(training->config.layout);
  }
  expect_same_bits(run(whole), run(halves));
}

TEST(Halves, TrainTheBitsOfSmallerMicroBatches) {
  for (const char* family : {"gpt", "bloom", "llama"}) {
    for (const bool splits_rows : {false, true}) {
      SCOPED_TRACE(fmt::format("{}, rows {}", family, splits_rows ? "split" : "whole"));
      Case c{small(family)};
      c.split_rows = splits_rows;
      expect_bits_of_smaller_micro_batches(c, 2, 1, 2);
      expect_bits_of_smaller_micro_batches(c, 4, 1, 4);
    }
  }
}

TEST(Halves, HaveTheirOwnDropoutAndDocuments) {
  Case c{small("gpt")};
  c.model.dropout = 0.2;
  c.split_rows = true;
  c.by_document = true;
  expect_bits_of_smaller_micro_batches(c, 2, 1, 4);
}

TEST(Halves, GoThroughEverySchedule) {
  Case c{small("llama")};
  c.split_rows = true;
  for (const char* schedule : {"gpipe", "1f1b", "zero_bubble"}) {
    SCOPED_TRACE(schedule);
    expect_bits_of_smaller_micro_batches(c, 2, 2, 4,
                                         [=](LayoutConfig& l) { l.schedule = schedule; });
  }
  expect_bits_of_smaller_micro_batches(c, 2, 2, 2, [](LayoutConfig& l) {
    l.schedule = "interleaved";
    l.virtual_stages = 2;
  });
}

TEST(Halves, AreComputedAgainAndLeaveForTheHost) {
  Case c{small("gpt")};
  c.split_rows = true;
  for (const char* recompute : {"cheap", "attention", "block"}) {
    SCOPED_TRACE(recompute);
    expect_bits_of_smaller_micro_batches(c, 2, 1, 2,
                                         [=](LayoutConfig& l) { l.recompute = recompute; });
  }
  const Case whole_rows{small("gpt")};  // of which each rank keeps a part
  expect_bits_of_smaller_micro_batches(whole_rows, 2, 1, 2, [](LayoutConfig& l) {
    l.recompute = "block";
    l.split_saved_inputs = true;
  });
  for (const char* offload : {"stash", "optimizer"}) {
    SCOPED_TRACE(offload);
    expect_bits_of_smaller_micro_batches(c, 2, 2, 2, [=](LayoutConfig& l) { l.offload = offload; });
  }
}

TEST(Halves, OfOneTpRankChangeNothing) {
  Training whole = training_of({small("gpt")}, 1, 1, 1, 1);
  Training halves = whole;
  halves.config.layout.tp_overlap = "halves";
  expect_same_bits(run(whole), run(halves));
}

bool is_work(const Entry& entry) {
  return entry.what.starts_with("linear") || entry.what.starts_with("attention");
}

// The share of the blocks' gathers and sums over tp between whose start and end a rank has work.
double share_beside_work(const RankConfig& config) {
  const DryRun plan = dry_run(config, 0, 0);
  double calls = 0;
  double beside_work = 0;
  for (auto start = plan.step.begin(); start != plan.step.end(); ++start) {
    if (start->starts.done() || !start->where.starts_with("h.")) continue;
    const auto end = std::find_if(start, plan.step.end(), [&](const Entry& entry) {
      return entry.waits_for == start->starts;
    });
    calls += 1;
    if (std::any_of(start, end, is_work)) beside_work += 1;
  }
  EXPECT_GT(calls, 0);
  return beside_work / calls;
}

TEST(Halves, WorkBesideTheCallsOfManyTpRanks) {
  Training training = training_of({small("llama")}, 4, 1, 1, 4);
  training.config.layout.sequence_parallel = true;
  EXPECT_LT(share_beside_work(training.config), 0.5);
  training.config.layout.tp_overlap = "halves";
  EXPECT_GT(share_beside_work(training.config), 0.75);
}

}  // namespace
}  // namespace orthant::test
