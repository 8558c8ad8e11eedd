// TokenSource: datasets as samples of S + 1 tokens in the order of training.
#pragma once

#include <cstdint>
#include <functional>
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

// Tokens in a row of one document in a sample.
struct DocumentPart {
  int dataset = 0;
  std::int64_t document = 0;
  std::int64_t first_token = 0;  // of the document
  std::int64_t count = 0;
};
using PartVisitor = std::function<void(const DocumentPart&)>;

// Safe to use from several threads at once.
class TokenSource {
 public:
  explicit TokenSource(const TokenSourceConfig& config);

  // The S + 1 tokens of the sample at a global position, which may be beyond the first epoch.
  void copy_sample(std::int64_t position, std::span<std::int32_t> into) const;
  // The parts of documents that those tokens are, in order. What a sample has of a document a
  // second time, or with a gap, is a part of its own.
  void visit_parts(std::int64_t position, const PartVisitor& visit) const;
  // Of each of those tokens how many of its part come before it: 0 where a part begins.
  void copy_places(std::int64_t position, std::span<std::int32_t> into) const;
  // Tokens of the sample that its S tokens predict within a document: S, but for each token that
  // begins a part behind the first.
  std::int64_t num_targets(std::int64_t position) const;
  // Documents that the S tokens of a sample are of, each part counted.
  std::int64_t num_documents(std::int64_t position) const;

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
