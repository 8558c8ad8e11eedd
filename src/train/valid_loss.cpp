#include "train/valid_loss.h"

#include <cmath>
#include <limits>
#include <utility>

namespace orthant {

EvalResult whole_of(std::vector<SourceLoss> sources) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  EvalResult whole;
  double nats = 0;
  for (SourceLoss& source : sources) {
    if (source.tokens == 0) {
      source.loss = kNone;
      continue;
    }
    nats += source.loss * static_cast<double>(source.tokens);
    whole.tokens += source.tokens;
  }
  whole.loss = sources.size() == 1 ? sources[0].loss
               : whole.tokens == 0 ? kNone
                                   : nats / static_cast<double>(whole.tokens);
  whole.sources = std::move(sources);
  return whole;
}

double perplexity(double loss) {
  return std::exp(loss);
}

}  // namespace orthant
