#include <algorithm>

#include "data/batch_plan.h"
#include "data/sample_order.h"

namespace orthant {
namespace {

class InTurn final : public SampleOrder {
 public:
  InTurn(const Datasets& datasets, const OrderConfig& config)
      : seq_length_(config.seq_length),
        is_shuffled_(config.kind == OrderKind::kShuffled),
        seed_(config.seed) {
    for (const auto& dataset : datasets) {
      const DatasetRows rows = rows_of(*dataset, config.split, config.part, seq_length_);
      parts_.push_back({rows, num_samples_});
      num_samples_ += rows.num_samples;
    }
  }

  void visit_runs(std::int64_t position, const RunVisitor& visit) const override {
    const std::int64_t sample = sample_at(position, num_samples_, is_shuffled_, seed_);
    // The last part that begins there: parts without a sample begin where the next does.
    const auto after =
        std::upper_bound(parts_.begin(), parts_.end(), sample,
                         [](std::int64_t at, const Part& part) { return at < part.first_sample; });
    const Part& part = *(after - 1);
    visit({.dataset = static_cast<int>(after - 1 - parts_.begin()),
           .first_token = part.rows.first_token + (sample - part.first_sample) * seq_length_,
           .count = seq_length_ + 1});
  }

  std::int64_t num_samples() const override { return num_samples_; }

 private:
  struct Part {
    DatasetRows rows;
    std::int64_t first_sample;  // in the order of all
  };

  std::int64_t seq_length_;
  bool is_shuffled_;
  std::uint64_t seed_;
  std::int64_t num_samples_ = 0;
  std::vector<Part> parts_;
};

}  // namespace

std::unique_ptr<SampleOrder> order_in_turn(const Datasets& datasets, const OrderConfig& config) {
  return std::make_unique<InTurn>(datasets, config);
}

}  // namespace orthant
