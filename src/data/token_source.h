// TokenSource: datasets, one after another, as samples of S + 1 tokens in the order of training.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/batch_plan.h"
#include "data/indexed_dataset.h"

namespace orthant {

enum class SplitPart { kTrain, kValid, kTest };

// "969,30,1": how much of the data trains, validates and tests.
struct Split {
  std::array<double, 3> weights = {1, 0, 0};
};
Split parse_split(std::string_view text);

struct TokenSourceConfig {
  std::vector<std::string> prefixes;  // of data.train or data.valid
  std::int64_t seq_length = 0;        // S
  SampleOrder order = SampleOrder::kSequential;
  std::uint64_t seed = 0;
  // Which part of each dataset. It is cut between sequences as Megatron does; a dataset whose
  // sequences are too few for that is cut between samples instead.
  Split split = {};
  SplitPart part = SplitPart::kTrain;
};

// Sample k of a dataset is tokens [k*S, k*S + S] of its documents in a row: neighbours overlap by
// one. What is left at the end and too short is not used. Safe to use from several threads at once.
class TokenSource {
 public:
  explicit TokenSource(const TokenSourceConfig& config);

  // The S + 1 tokens of the sample at a global position, which may be beyond the first epoch.
  void copy_sample(std::int64_t position, std::span<std::int32_t> into) const;

  std::int64_t num_samples() const { return num_samples_; }  // of an epoch
  std::int64_t seq_length() const { return seq_length_; }
  SampleOrder order() const { return order_; }
  std::span<const std::unique_ptr<IndexedDataset>> datasets() const { return datasets_; }

 private:
  struct Part {
    const IndexedDataset* dataset;
    std::int64_t first_token;
    std::int64_t first_sample;  // in the whole source
    std::int64_t num_samples;
  };

  std::int64_t seq_length_;
  SampleOrder order_;
  std::uint64_t seed_;
  std::int64_t num_samples_ = 0;
  std::vector<std::unique_ptr<IndexedDataset>> datasets_;
  std::vector<Part> parts_;
};

// Reads every token of the datasets: an id that the model has no row for is a user error.
void check_vocab(const TokenSource& source, std::int64_t vocab_size);

}  // namespace orthant
