// Which tokens of each dataset train, validate and test.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "data/indexed_dataset.h"

namespace orthant {

enum class SplitPart { kTrain, kValid, kTest };
std::string_view name_of(SplitPart part);

// "969,30,1": how much of the data trains, validates and tests.
struct Split {
  std::array<double, 3> weights = {1, 0, 0};
};
Split parse_split(std::string_view text);

struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
};

// Bounds as Megatron rounds them: the sequences of a dataset that are this part's.
Interval sequences_of(const IndexedDataset& dataset, const Split& split, SplitPart part);

// What of one dataset is read in rows of S + 1 tokens.
struct DatasetRows {
  std::int64_t first_token = 0;
  std::int64_t num_samples = 0;  // sample k is tokens [first_token + k*S, ... + S]
};

// Cut between sequences; a dataset whose sequences are too few for that is cut between samples
// instead. What is left at the end and too short is not used.
DatasetRows rows_of(const IndexedDataset& dataset, const Split& split, SplitPart part,
                    std::int64_t seq_length);

}  // namespace orthant
