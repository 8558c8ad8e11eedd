// Sampler: from logits to a token. Its randomness is a function of (seed, sequence, position), so
// that a text can be written again.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace orthant {

struct SamplerConfig {
  double temperature = 0.8;  // 0: the most likely token
  std::int64_t top_k = 0;    // only the k most likely; 0: all
  double top_p = 1;  // of those, the fewest that have this share of their probability; 1: all
  std::uint64_t seed = 1;
};

class Sampler {
 public:
  // A value out of its range is a user error.
  explicit Sampler(const SamplerConfig& config);

  // `logits` of every token; `position` of the token to choose. Of equal logits the lower id comes
  // first. A logit that is not finite is an error.
  std::int32_t pick(std::span<const float> logits, std::uint64_t sequence, std::int64_t position);

 private:
  struct Candidate {
    double weight;  // its probability times a common factor
    std::int32_t id;
  };
  double weigh(std::span<const float> logits, float largest);
  double keep_likely(double total);

  SamplerConfig config_;
  std::vector<Candidate> candidates_;
};

}  // namespace orthant
