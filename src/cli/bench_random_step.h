// What both measurements of a training step share: random micro-batches, and places without
// numbers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "cli/bench.h"
#include "train/rank.h"

namespace orthant {

// "h.7.mlp.up" -> "h.*.mlp.up": the blocks are alike.
inline std::string kind_of_place(std::string_view place) {
  std::string kind;
  for (const char c : place) {
    if (c < '0' || c > '9') {
      kind += c;
    } else if (kind.empty() || kind.back() != '*') {
      kind += '*';
    }
  }
  return kind;
}

// Micro-batches of one step, of uniform tokens.
class RandomStep {
 public:
  RandomStep(const RunConfig& config, int num_micros) {
    const std::int64_t B = config.layout.micro_batch;
    const std::int64_t row = config.train.seq_length + 1;
    const auto vocab = static_cast<std::uint64_t>(config.model.vocab);
    tokens_.resize(static_cast<std::size_t>(num_micros * B * row));
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      tokens_[i] = static_cast<std::int32_t>(philox(1, 2, i)[0] % vocab);
    }
    for (std::int64_t i = 0; i < num_micros * B; ++i) {
      samples_.push_back(i);
    }
    for (int m = 0; m < num_micros; ++m) {
      const auto first = static_cast<std::size_t>(m * B);
      const auto count = static_cast<std::size_t>(B);
      const auto width = static_cast<std::size_t>(row);
      micros_.push_back({.tokens = std::span(tokens_).subspan(first * width, count * width),
                         .sample_ids = std::span(samples_).subspan(first, count)});
    }
  }
  std::span<const HostMicro> micros() const { return micros_; }

 private:
  std::vector<std::int32_t> tokens_;
  std::vector<std::int64_t> samples_;
  std::vector<HostMicro> micros_;
};

}  // namespace orthant
