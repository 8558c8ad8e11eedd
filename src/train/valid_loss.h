// Losses of an evaluation: of each source of validation data, and of all of them together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace orthant {

struct SourceLoss {
  std::string prefix;       // of the dataset
  double loss = 0;          // mean nats per token
  std::int64_t tokens = 0;  // that the mean is of
};

struct EvalResult {
  double loss = 0;          // mean nats per token
  std::int64_t tokens = 0;  // that the mean is of
  std::vector<SourceLoss> sources;
};

// The mean over the tokens of all sources; of one source, its own bits. The loss of no token is not
// a number, in JSON null.
EvalResult whole_of(std::vector<SourceLoss> sources);

// e to the mean nats per token.
double perplexity(double loss);

}  // namespace orthant
