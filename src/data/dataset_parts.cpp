// Cuts datasets into parts, and a part into samples.
#include "data/dataset_parts.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>

#include "base/check.h"
#include "base/text.h"

namespace orthant {
namespace {

std::int64_t round_half_even(double value) {
  const double floor = std::floor(value);
  const double rest = value - floor;
  const bool up = rest > 0.5 || (rest == 0.5 && std::fmod(floor, 2.0) != 0);
  return static_cast<std::int64_t>(floor) + (up ? 1 : 0);
}

// Megatron's rounding of the bounds of a part of `count` things.
Interval part_of(std::int64_t count, const Split& split, SplitPart part) {
  const double sum = split.weights[0] + split.weights[1] + split.weights[2];
  double low = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(part); ++i) {
    low += split.weights[i] / sum;
  }
  const double high = low + split.weights[static_cast<std::size_t>(part)] / sum;
  const auto bound = [count](double at) {
    return std::min(count, round_half_even(at * static_cast<double>(count)));
  };
  return {bound(low), bound(high)};
}

std::int64_t samples_of(std::int64_t num_tokens, std::int64_t seq_length) {
  return num_tokens < 1 ? 0 : (num_tokens - 1) / seq_length;
}

Interval tokens_by_sequences(const IndexedDataset& dataset, const Split& split, SplitPart part) {
  const Interval sequences = sequences_of(dataset, split, part);
  return {dataset.sequence_begin(sequences.begin), dataset.sequence_begin(sequences.end)};
}

// True when every part that is asked for gets at least one sample.
bool can_split_by_sequences(const IndexedDataset& dataset, const Split& split,
                            std::int64_t seq_length) {
  for (const SplitPart part : {SplitPart::kTrain, SplitPart::kValid, SplitPart::kTest}) {
    if (split.weights[static_cast<std::size_t>(part)] == 0) continue;
    const Interval tokens = tokens_by_sequences(dataset, split, part);
    if (samples_of(tokens.size(), seq_length) == 0) return false;
  }
  return true;
}

}  // namespace

std::string_view name_of(SplitPart part) {
  switch (part) {
    case SplitPart::kTrain: return "train";
    case SplitPart::kValid: return "valid";
    case SplitPart::kTest: break;
  }
  return "test";
}

Split parse_split(std::string_view text) {
  const std::vector<std::string> parts = split(text, ',');
  Split result;
  double sum = 0;
  bool is_good = parts.size() <= 3;
  for (std::size_t i = 0; is_good && i < 3; ++i) {
    result.weights[i] = 0;
    if (i >= parts.size()) continue;
    const char* end = parts[i].data() + parts[i].size();
    const auto parsed = std::from_chars(parts[i].data(), end, result.weights[i]);
    is_good = parsed.ec == std::errc() && parsed.ptr == end && result.weights[i] >= 0 &&
              std::isfinite(result.weights[i]);
    sum += result.weights[i];
  }
  if (!is_good || sum <= 0) {
    fail_user(
        "data.split=\"{}\" must be one to three shares for train, valid and test, such as "
        "\"969,30,1\"",
        text);
  }
  return result;
}

Interval sequences_of(const IndexedDataset& dataset, const Split& split, SplitPart part) {
  return part_of(dataset.num_sequences(), split, part);
}

DatasetRows rows_of(const IndexedDataset& dataset, const Split& split, SplitPart part,
                    std::int64_t seq_length) {
  if (can_split_by_sequences(dataset, split, seq_length)) {
    const Interval tokens = tokens_by_sequences(dataset, split, part);
    return {.first_token = tokens.begin, .num_samples = samples_of(tokens.size(), seq_length)};
  }
  const std::int64_t num_samples = samples_of(dataset.num_tokens(), seq_length);
  const Interval samples = part_of(num_samples, split, part);
  return {.first_token = samples.begin * seq_length, .num_samples = samples.size()};
}

}  // namespace orthant
