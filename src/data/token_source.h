// TokenSource: datasets as samples of S + 1 tokens in the order of training.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/sample_order.h"

namespace orthant {

struct TokenSourceConfig {
  std::vector<std::string> prefixes;  // of data.train or data.valid
  OrderConfig order;
};

// Safe to use from several threads at once.
class TokenSource {
 public:
  explicit TokenSource(const TokenSourceConfig& config);

  // The S + 1 tokens of the sample at a global position, which may be beyond the first epoch.
  void copy_sample(std::int64_t position, std::span<std::int32_t> into) const;

  std::int64_t num_samples() const { return order_->num_samples(); }  // of an epoch
  std::int64_t seq_length() const { return seq_length_; }
  const SampleOrder& order() const { return *order_; }
  const Datasets& datasets() const { return datasets_; }
  std::span<const BlendEra> eras() const { return eras_; }

 private:
  std::int64_t seq_length_;
  std::vector<BlendEra> eras_;
  Datasets datasets_;
  std::unique_ptr<SampleOrder> order_;
};

// Reads every token of the datasets: an id that the model has no row for is a user error.
void check_vocab(const TokenSource& source, std::int64_t vocab_size);

}  // namespace orthant
