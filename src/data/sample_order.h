// SampleOrder: which tokens of which datasets a position of the training reads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/blend.h"
#include "data/dataset_parts.h"

namespace orthant {

enum class OrderKind { kSequential, kShuffled, kMegatron };

// data.order.
OrderKind parse_order(std::string_view name);

// Tokens in a row of one dataset's stream.
struct TokenRun {
  int dataset = 0;
  std::int64_t first_token = 0;
  std::int64_t count = 0;
};
using RunVisitor = std::function<void(const TokenRun&)>;

// Safe to use from several threads at once.
class SampleOrder {
 public:
  virtual ~SampleOrder() = default;
  // Calls `visit` with the runs that the S + 1 tokens of the sample at `position` lie in, in order.
  virtual void visit_runs(std::int64_t position, const RunVisitor& visit) const = 0;
  // Of an epoch: positions beyond it begin again. Megatron's order ends there.
  virtual std::int64_t num_samples() const = 0;
  // Of a blend: the samples of each dataset among the first `positions`. Empty for other orders.
  virtual std::vector<std::int64_t> samples_by_dataset(std::int64_t /*positions*/) const {
    return {};
  }

 protected:
  SampleOrder() = default;
  SampleOrder(const SampleOrder&) = default;
  SampleOrder& operator=(const SampleOrder&) = default;
};

struct OrderConfig {
  std::int64_t seq_length = 0;  // S
  OrderKind kind = OrderKind::kSequential;
  std::uint64_t seed = 0;
  Split split = {};
  SplitPart part = SplitPart::kTrain;
  // Empty: one dataset after another (Megatron's order: each by its size, once).
  std::vector<BlendEra> eras = {};
  std::int64_t num_samples = 0;  // that a training uses: Megatron's order depends on it
};

using Datasets = std::vector<std::unique_ptr<IndexedDataset>>;

// Datasets one after another, in order or by a permutation of each epoch: any position by
// arithmetic on the seed alone.
std::unique_ptr<SampleOrder> order_in_turn(const Datasets& datasets, const OrderConfig& config);
// Datasets by weight, each in its own order: by arithmetic too.
std::unique_ptr<SampleOrder> order_blended(const Datasets& datasets, const OrderConfig& config);
// Megatron-LM's order, from indices that are held in memory.
std::unique_ptr<SampleOrder> order_as_megatron(const Datasets& datasets, const OrderConfig& config);

}  // namespace orthant
