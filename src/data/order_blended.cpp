#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "data/batch_plan.h"
#include "data/sample_order.h"

namespace orthant {
namespace {

class Blended final : public SampleOrder {
 public:
  Blended(const Datasets& datasets, const OrderConfig& config)
      : seq_length_(config.seq_length),
        is_shuffled_(config.kind == OrderKind::kShuffled),
        seed_(config.seed) {
    for (const auto& dataset : datasets) {
      rows_.push_back(rows_of(*dataset, config.split, config.part, seq_length_));
    }
    for (const BlendEra& era : config.eras) {
      add_era(era, datasets, era == config.eras.back());
    }
  }

  void visit_runs(std::int64_t position, const RunVisitor& visit) const override {
    const Era& era = era_at(position);
    const Blend::Place place = era.blend.at(position - era.first_position);
    const int dataset = era.datasets[static_cast<std::size_t>(place.source)];
    if (dataset < 0) {
      fail_user("data: position {} read a dataset that data.train does not name now", position);
    }
    const auto at = static_cast<std::size_t>(dataset);
    const DatasetRows& rows = rows_[at];
    const std::int64_t sample =
        sample_at(era.before[at] + place.index, rows.num_samples, is_shuffled_, seed_);
    visit({.dataset = dataset,
           .first_token = rows.first_token + sample * seq_length_,
           .count = seq_length_ + 1});
  }

  std::int64_t num_samples() const override {
    std::int64_t sum = 0;
    for (const DatasetRows& rows : rows_) {
      sum += rows.num_samples;
    }
    return sum;
  }

  std::vector<std::int64_t> samples_by_dataset(std::int64_t positions) const override {
    return counts_in(era_at(positions), positions);
  }

 private:
  struct Era {
    std::int64_t first_position;
    Blend blend;
    std::vector<int> datasets;         // of each weight; -1: not there now
    std::vector<std::int64_t> before;  // samples of each dataset in earlier eras
  };

  // Only the last era must have all of its datasets.
  void add_era(const BlendEra& era, const Datasets& datasets, bool is_last) {
    std::vector<double> weights;
    std::vector<int> indices;
    for (const auto& entry : era.weights) {
      const auto& [prefix, weight] = entry;
      const auto named =
          std::find_if(datasets.begin(), datasets.end(),
                       [&entry](const auto& dataset) { return dataset->prefix() == entry.first; });
      const bool is_there = named != datasets.end();
      const auto index = static_cast<std::size_t>(std::distance(datasets.begin(), named));
      if (is_last && weight > 0 && (!is_there || rows_[index].num_samples == 0)) {
        fail_user("data: {} has weight {} but not one sample of {} tokens; set its weight to 0",
                  prefix, weight, seq_length_ + 1);
      }
      weights.push_back(weight);
      indices.push_back(is_there ? static_cast<int>(index) : -1);
    }
    std::vector<std::int64_t> before(datasets.size());
    if (!eras_.empty()) before = counts_in(eras_.back(), era.first_position);
    eras_.push_back({era.first_position, Blend(weights), std::move(indices), std::move(before)});
  }

  const Era& era_at(std::int64_t position) const {
    const auto after =
        std::upper_bound(eras_.begin() + 1, eras_.end(), position,
                         [](std::int64_t at, const Era& era) { return at < era.first_position; });
    return *(after - 1);
  }

  static std::vector<std::int64_t> counts_in(const Era& era, std::int64_t positions) {
    const std::vector<std::int64_t> drawn = era.blend.counts(positions - era.first_position);
    std::vector<std::int64_t> counts = era.before;
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      if (era.datasets[i] >= 0) counts[static_cast<std::size_t>(era.datasets[i])] += drawn[i];
    }
    return counts;
  }

  std::int64_t seq_length_;
  bool is_shuffled_;
  std::uint64_t seed_;
  std::vector<DatasetRows> rows_;
  std::vector<Era> eras_;
};

}  // namespace

std::unique_ptr<SampleOrder> order_blended(const Datasets& datasets, const OrderConfig& config) {
  return std::make_unique<Blended>(datasets, config);
}

}  // namespace orthant
