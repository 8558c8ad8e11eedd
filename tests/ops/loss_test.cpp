// Cross-entropy: uniform logits, a split vocabulary, masks, padding and the gradient.
#include <cmath>

#include <gtest/gtest.h>

#include "tests/support/grad_check.h"

namespace orthant {
namespace {

constexpr DType kF64 = DType::kF64;
constexpr std::int64_t T = 5;
constexpr std::int64_t kVocabulary = 7;                 // split into columns 0..3 and 4..6
constexpr std::int64_t kLabels[] = {0, 6, -100, 3, 4};  // on both parts, and one masked

// The loss of a vocabulary on two ranks; the second part has one column of padding.
class SplitLoss {
 public:
  SplitLoss()
      : logits_{bed_.normal("first", {T, 4}, kF64, 2), bed_.normal("second", {T, 4}, kF64, 2)},
        labels_(bed_.whole({T}, DType::kI32, kLabels)),
        parts_(bed_.out({2, T, 3}, kF64)),
        loss_(bed_.out({T}, kF64)),
        lse_(bed_.out({T}, kF64)),
        state_(bed_.step_state({.inv_tokens = 0.25, .loss_scale = 8})) {}

  // The sum of this call alone.
  double forward() {
    const double before = state_of(state_).loss_sum;
    for (const int rank : {0, 1}) {
      bed_.run(SoftmaxPart{.part = parts_.rows(rank, 1).as({T, 3}),
                           .logits = logits_[rank],
                           .labels = labels_,
                           .first_column = 4 * rank,
                           .valid = valid(rank)});
    }
    bed_.run(CrossEntropyFwd{
        .loss = loss_, .lse = lse_, .step_state = state_, .parts = parts_, .labels = labels_});
    return state_of(state_).loss_sum - before;
  }

  Tensor backward(int rank) {
    const Tensor dlogits = bed_.out({T, 4}, kF64);
    bed_.run(CrossEntropyBwd{.dlogits = dlogits,
                             .logits = logits_[rank],
                             .lse = lse_,
                             .labels = labels_,
                             .step_state = state_,
                             .first_column = 4 * rank,
                             .valid = valid(rank)});
    return dlogits;
  }

  Tensor logits(int rank) const { return logits_[rank]; }
  Tensor loss() const { return loss_; }
  static std::int64_t valid(int rank) { return rank == 0 ? 4 : kVocabulary - 4; }

 private:
  OpBed bed_{"ref"};
  Tensor logits_[2];
  Tensor labels_;
  Tensor parts_;
  Tensor loss_;
  Tensor lse_;
  Tensor state_;
};

TEST(CrossEntropy, ASplitVocabularyGivesTheLossOfTheWhole) {
  SplitLoss split;
  split.forward();
  std::vector<double> expected;
  for (std::int64_t t = 0; t < T; ++t) {
    double sum = 0;
    double label_logit = 0;
    for (std::int64_t v = 0; v < kVocabulary; ++v) {
      const double logit = values_of(split.logits(v < 4 ? 0 : 1).rows(t, 1))[v % 4];
      sum += std::exp(logit);
      if (v == kLabels[t]) label_logit = logit;
    }
    expected.push_back(kLabels[t] < 0 ? 0 : std::log(sum) - label_logit);
  }
  expect_close(values_of(split.loss()), expected, {T}, 1e-14, "loss");
}

TEST(CrossEntropy, BackwardMatchesFiniteDifferences) {
  SplitLoss split;
  const double scale = 0.25 * 8;
  for (const int rank : {0, 1}) {
    split.forward();
    const Tensor dlogits = split.backward(rank);
    expect_gradient([&] { return scale * split.forward(); }, split.logits(rank), dlogits,
                    "dlogits");
  }
}

TEST(CrossEntropy, UniformLogitsCostTheLogOfTheVocabulary) {
  OpBed bed("ref");
  const std::int64_t label[] = {3};
  const Tensor labels = bed.whole({1}, DType::kI32, label);
  const Tensor part = bed.out({1, 3}, DType::kF32);
  const Tensor loss = bed.out({1}, DType::kF32);
  const Tensor state = bed.step_state({.loss_sum = 1});
  bed.run(SoftmaxPart{.part = part,
                      .logits = bed.zeros({1, 10}, DType::kBF16),
                      .labels = labels,
                      .first_column = 0,
                      .valid = 8});
  bed.run(CrossEntropyFwd{.loss = loss,
                          .lse = bed.out({1}, DType::kF32),
                          .step_state = state,
                          .parts = part.as({1, 1, 3}),
                          .labels = labels});
  EXPECT_NEAR(values_of(loss)[0], std::log(8), 1e-7);
  EXPECT_NEAR(state_of(state).loss_sum, 1 + std::log(8), 1e-7);
}

TEST(CrossEntropy, ARankOfPaddingAloneTakesNoPart) {
  OpBed bed("ref");
  const std::int64_t label[] = {1};
  const Tensor labels = bed.whole({1}, DType::kI32, label);
  const Tensor logits = bed.normal("logits", {1, 4}, kF64);
  const Tensor parts = bed.out({2, 1, 3}, kF64);
  const Tensor state = bed.step_state({.inv_tokens = 1});
  double losses[2];
  for (const std::int64_t num_ranks : {1, 2}) {
    for (std::int64_t rank = 0; rank < num_ranks; ++rank) {
      bed.run(SoftmaxPart{.part = parts.rows(rank, 1).as({1, 3}),
                          .logits = logits,
                          .labels = labels,
                          .first_column = 4 * rank,
                          .valid = rank == 0 ? 4 : 0});
    }
    const Tensor loss = bed.out({1}, kF64);
    bed.run(CrossEntropyFwd{.loss = loss,
                            .lse = bed.out({1}, kF64),
                            .step_state = state,
                            .parts = parts.rows(0, num_ranks),
                            .labels = labels});
    losses[num_ranks - 1] = values_of(loss)[0];
  }
  EXPECT_EQ(losses[0], losses[1]);
}

}  // namespace
}  // namespace orthant
