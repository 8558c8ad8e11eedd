#include <algorithm>

#include "base/check.h"
#include "data/megatron_index.h"
#include "data/sample_order.h"

namespace orthant {
namespace {

// The documents of one dataset's part, and their index.
class Indexed {
 public:
  Indexed(const IndexedDataset& dataset, const OrderConfig& config,
          std::optional<std::int64_t> num_samples)
      : dataset_(dataset),
        seq_length_(config.seq_length) {
    const Interval part = sequences_of(dataset, config.split, config.part);
    std::vector<std::int32_t> lengths;
    lengths.reserve(static_cast<std::size_t>(part.size()));
    std::int64_t num_tokens = 0;
    for (std::int64_t i = part.begin; i < part.end; ++i) {
      lengths.push_back(static_cast<std::int32_t>(dataset.sequence_length(i)));
      num_tokens += lengths.back();
    }
    if (num_tokens <= seq_length_) {
      fail_user(
          "data: the {} part of {} has {} documents with {} tokens, a sample needs {}; "
          "data.order=megatron cuts between documents, so give more of them, another data.split, "
          "or data.order=shuffled",
          name_of(config.part), dataset.prefix(), part.size(), num_tokens, seq_length_ + 1);
    }
    index_ = megatron_index({.first_document = static_cast<std::int32_t>(part.begin),
                             .lengths = lengths,
                             .seq_length = seq_length_,
                             .num_samples = num_samples,
                             .seed = static_cast<std::uint32_t>(config.seed)});
  }

  std::int64_t num_samples() const { return index_.num_samples(); }

  void visit_runs(int dataset, std::int64_t position, const RunVisitor& visit) const {
    const auto sample =
        static_cast<std::size_t>(index_.shuffle.at(static_cast<std::size_t>(position)));
    const MegatronRow begin = index_.rows[sample];
    const MegatronRow end = index_.rows[sample + 1];
    for (std::int64_t place = begin.place; place <= end.place; ++place) {
      const std::int64_t document = index_.documents[static_cast<std::size_t>(place)];
      const std::int64_t first = place == begin.place ? begin.offset : 0;
      // The token that the next sample begins with is this one's last.
      const std::int64_t last =
          place == end.place ? end.offset + 1 : dataset_.sequence_length(document);
      if (last > first) {
        visit({.dataset = dataset,
               .first_token = dataset_.sequence_begin(document) + first,
               .count = last - first});
      }
    }
  }

 private:
  const IndexedDataset& dataset_;
  std::int64_t seq_length_;
  MegatronIndex index_;
};

class AsMegatron final : public SampleOrder {
 public:
  AsMegatron(const Datasets& datasets, const OrderConfig& config) {
    if (datasets.size() == 1) {
      parts_.emplace_back(*datasets.front(), config, config.num_samples);
    } else if (config.eras.empty()) {
      index_all(datasets, config);
    } else {
      index_blend(datasets, config);
    }
  }

  void visit_runs(std::int64_t position, const RunVisitor& visit) const override {
    if (parts_.size() == 1) {
      parts_.front().visit_runs(0, position, visit);
      return;
    }
    const auto at = static_cast<std::size_t>(position);
    const std::int32_t dataset = blend_.dataset.at(at);
    parts_[static_cast<std::size_t>(dataset)].visit_runs(dataset, blend_.sample[at], visit);
  }

  std::int64_t num_samples() const override {
    return parts_.size() == 1 ? parts_.front().num_samples()
                              : static_cast<std::int64_t>(blend_.dataset.size());
  }

  // Looks back for the last sample of each dataset, which comes soon when its weight is not small.
  std::vector<std::int64_t> samples_by_dataset(std::int64_t positions) const override {
    if (parts_.size() == 1) return {};
    std::vector<std::int64_t> counts(parts_.size());
    std::size_t num_found = 0;
    for (auto at = static_cast<std::size_t>(positions); at-- > 0 && num_found < counts.size();) {
      std::int64_t& count = counts[static_cast<std::size_t>(blend_.dataset[at])];
      if (count > 0) continue;
      count = blend_.sample[at] + 1;
      ++num_found;
    }
    return counts;
  }

 private:
  void index_all(const Datasets& datasets, const OrderConfig& config) {
    std::vector<std::int64_t> sizes;
    for (const auto& dataset : datasets) {
      parts_.emplace_back(*dataset, config, std::nullopt);
      sizes.push_back(parts_.back().num_samples());
    }
    blend_ = megatron_blend_of_all(sizes);
    if (num_samples() < config.num_samples) {
      fail_user(
          "data.order=megatron without data.weights reads {} datasets once, {} samples, but the "
          "training uses {}; give data.weights or lower train.steps",
          datasets.size(), num_samples(), config.num_samples);
    }
  }

  // A small dataset may be read more often than its share with Megatron's surplus: Megatron ends
  // there, this gives it so many samples.
  void index_blend(const Datasets& datasets, const OrderConfig& config) {
    std::vector<double> weights;
    double sum = 0;
    for (const auto& [prefix, weight] : config.eras.back().weights) {
      weights.push_back(weight);
      sum += weight;
    }
    blend_ = megatron_blend(weights, config.num_samples);
    std::vector<std::int64_t> used(datasets.size());
    for (std::size_t i = 0; i < blend_.dataset.size(); ++i) {
      used[static_cast<std::size_t>(blend_.dataset[i])] = blend_.sample[i] + 1;
    }
    for (std::size_t i = 0; i < datasets.size(); ++i) {
      const std::int64_t share = megatron_share(weights[i] / sum, config.num_samples);
      parts_.emplace_back(*datasets[i], config, std::max(share, used[i]));
    }
  }

  std::vector<Indexed> parts_;
  MegatronBlend blend_;  // of more datasets than one
};

}  // namespace

std::unique_ptr<SampleOrder> order_as_megatron(const Datasets& datasets,
                                               const OrderConfig& config) {
  return std::make_unique<AsMegatron>(datasets, config);
}

}  // namespace orthant
