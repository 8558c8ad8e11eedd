#include "train/valid_loss.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace orthant {

EvalResult whole_of(std::vector<SourceLoss> sources) {
  EvalResult whole;
  double nats = 0;
  for (const SourceLoss& source : sources) {
    nats += source.loss * static_cast<double>(source.tokens);
    whole.tokens += source.tokens;
  }
  whole.loss = sources.size() == 1
                   ? sources[0].loss
                   : nats / static_cast<double>(std::max<std::int64_t>(1, whole.tokens));
  whole.sources = std::move(sources);
  return whole;
}

double perplexity(double loss) {
  return std::exp(loss);
}

}  // namespace orthant
