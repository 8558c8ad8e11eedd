// Cuts datasets into parts and parts into samples.
#include "data/token_source.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/check.h"
#include "base/text.h"

namespace orthant {
namespace {

constexpr std::array<std::string_view, 3> kPartNames = {"train", "valid", "test"};

struct Interval {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t size() const { return end - begin; }
};

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
  const Interval sequences = part_of(dataset.num_sequences(), split, part);
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

Interval tokens_of(const IndexedDataset& dataset, const TokenSourceConfig& config) {
  if (can_split_by_sequences(dataset, config.split, config.seq_length)) {
    return tokens_by_sequences(dataset, config.split, config.part);
  }
  const std::int64_t num_samples = samples_of(dataset.num_tokens(), config.seq_length);
  const Interval samples = part_of(num_samples, config.split, config.part);
  if (samples.size() == 0) return {0, 0};
  return {samples.begin * config.seq_length, samples.end * config.seq_length + 1};
}

}  // namespace

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

TokenSource::TokenSource(const TokenSourceConfig& config)
    : seq_length_(config.seq_length),
      order_(config.order),
      seed_(config.seed) {
  const std::string_view name = kPartNames[static_cast<std::size_t>(config.part)];
  if (config.prefixes.empty()) fail_user("data: no dataset is given to {}; give data.train", name);
  ORTHANT_CHECK(seq_length_ >= 1, "data: seq_length is {}", seq_length_);
  std::int64_t num_tokens = 0;
  for (const std::string& prefix : config.prefixes) {
    datasets_.push_back(std::make_unique<IndexedDataset>(prefix));
    const IndexedDataset& dataset = *datasets_.back();
    const Interval tokens = tokens_of(dataset, config);
    const std::int64_t num_samples = samples_of(tokens.size(), seq_length_);
    num_tokens += dataset.num_tokens();
    if (num_samples > 0) parts_.push_back({&dataset, tokens.begin, num_samples_, num_samples});
    num_samples_ += num_samples;
  }
  if (num_samples_ == 0) {
    fail_user(
        "data: the {} part of {} ({} tokens in all) has no sample of train.seq_length + 1 = {} "
        "tokens; lower train.seq_length, change data.split, or give more data",
        name, join(config.prefixes), num_tokens, seq_length_ + 1);
  }
}

void TokenSource::copy_sample(std::int64_t position, std::span<std::int32_t> into) const {
  ORTHANT_CHECK(static_cast<std::int64_t>(into.size()) == seq_length_ + 1,
                "data: a sample has {} tokens, {} are asked", seq_length_ + 1, into.size());
  const std::int64_t sample = sample_at(position, num_samples_, order_, seed_);
  const auto after =
      std::upper_bound(parts_.begin(), parts_.end(), sample,
                       [](std::int64_t at, const Part& part) { return at < part.first_sample; });
  const Part& part = *(after - 1);
  part.dataset->copy_tokens(part.first_token + (sample - part.first_sample) * seq_length_, into);
}

void check_vocab(const TokenSource& source, std::int64_t vocab_size) {
  for (const auto& dataset : source.datasets()) {
    const TokenRange range = dataset->token_range();
    const std::int64_t wrong = range.min < 0 ? range.min : range.max;
    if (range.min < 0 || range.max >= vocab_size) {
      fail_user(
          "dataset {} has token id {}, the model's vocabulary is {} (ids 0 to {}); use the "
          "tokenizer that belongs to the model, or set model.vocab to at least {}",
          dataset->prefix(), wrong, vocab_size, vocab_size - 1, range.max + 1);
    }
  }
}

}  // namespace orthant
