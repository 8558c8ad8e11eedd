#include "infer/sampler.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/random.h"

namespace orthant {
namespace {

constexpr std::uint64_t kStream = stream_of("infer.sampler");

// The place of the largest.
std::size_t most_likely(std::span<const float> logits) {
  ORTHANT_CHECK(!logits.empty(), "there are no logits to choose from");
  std::size_t best = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!std::isfinite(logits[i])) {
      fail_run("the logit of token {} is {}; the weights are damaged or the training diverged", i,
               logits[i]);
    }
    if (logits[i] > logits[best]) best = i;
  }
  return best;
}

}  // namespace

Sampler::Sampler(const SamplerConfig& config) : config_(config) {
  if (!(config.temperature >= 0) || std::isinf(config.temperature)) {
    fail_user("--temperature={}: it must be 0 (the most likely token) or more", config.temperature);
  }
  if (config.top_k < 0) {
    fail_user("--top-k={}: it must be 0 (all tokens) or more", config.top_k);
  }
  if (!(config.top_p > 0 && config.top_p <= 1)) {
    fail_user("--top-p={}: it must be above 0 and at most 1 (all tokens)", config.top_p);
  }
}

std::int32_t Sampler::pick(std::span<const float> logits, std::uint64_t sequence,
                           std::int64_t position) {
  const std::size_t best = most_likely(logits);
  if (config_.temperature == 0) return static_cast<std::int32_t>(best);
  double total = weigh(logits, logits[best]);
  if (config_.top_k > 0 || config_.top_p < 1) total = keep_likely(total);
  const auto bits = philox(config_.seed, kStream + sequence, static_cast<std::uint64_t>(position));
  double rest = uniform(bits[0]) * total;
  for (const Candidate& candidate : candidates_) {
    rest -= candidate.weight;
    if (rest < 0) return candidate.id;
  }
  return static_cast<std::int32_t>(best);  // rounding left a little of `total` over
}

// Every token in the order of ids; the result is the sum of their weights.
double Sampler::weigh(std::span<const float> logits, float largest) {
  candidates_.resize(logits.size());
  double total = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double above = static_cast<double>(logits[i]) - static_cast<double>(largest);
    candidates_[i] = {.weight = std::exp(above / config_.temperature),
                      .id = static_cast<std::int32_t>(i)};
    total += candidates_[i].weight;
  }
  return total;
}

// Leaves what top_k and then top_p admit, the most likely first, and gives the sum of their
// weights. A heap, since few of many are wanted.
double Sampler::keep_likely(double total) {
  const auto less_likely = [](const Candidate& a, const Candidate& b) {
    return a.weight < b.weight || (a.weight == b.weight && a.id > b.id);
  };
  const bool has_k =
      config_.top_k > 0 && config_.top_k < static_cast<std::int64_t>(candidates_.size());
  const auto most = has_k ? static_cast<std::ptrdiff_t>(config_.top_k)
                          : static_cast<std::ptrdiff_t>(candidates_.size());
  if (has_k) {
    std::partial_sort(candidates_.begin(), candidates_.begin() + most, candidates_.end(),
                      [&](const Candidate& a, const Candidate& b) { return less_likely(b, a); });
    candidates_.resize(static_cast<std::size_t>(most));
    total = 0;
    for (const Candidate& candidate : candidates_) {
      total += candidate.weight;
    }
  }
  if (config_.top_p == 1) return total;
  std::make_heap(candidates_.begin(), candidates_.end(), less_likely);
  double kept = 0;
  auto end = candidates_.end();
  while (end != candidates_.begin() && kept < config_.top_p * total) {
    std::pop_heap(candidates_.begin(), end, less_likely);
    --end;
    kept += end->weight;
  }
  candidates_.erase(candidates_.begin(), end);
  std::reverse(candidates_.begin(), candidates_.end());
  return kept;
}

}  // namespace orthant
