// numpy's RandomState is the Mersenne twister that C++ has too, which makes all of it reproducible.
#include "data/megatron_index.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include "base/check.h"

namespace orthant {
namespace {

// A number of [0, most], as numpy draws it: masked words until one fits.
std::uint64_t draw(std::mt19937& random, std::uint64_t most) {
  const std::uint64_t mask = most == 0 ? 0 : ~std::uint64_t{0} >> std::countl_zero(most);
  constexpr std::uint64_t kWord = 0xffffffff;
  while (true) {
    std::uint64_t value = random();
    if (most > kWord) value = value << 32 | random();
    value &= mask;
    if (value <= most) return value;
  }
}

template <class T>
void shuffle_as_numpy(std::span<T> values, std::mt19937& random) {
  for (std::size_t i = values.size(); i-- > 1;) {
    std::swap(values[i], values[draw(random, i)]);
  }
}

// `count` times the documents of the split, shuffled together.
void append_documents(const MegatronRequest& request, std::int64_t count, std::mt19937& random,
                      std::vector<std::int32_t>& documents) {
  const std::size_t begin = documents.size();
  for (std::int64_t epoch = 0; epoch < count; ++epoch) {
    for (std::size_t i = 0; i < request.lengths.size(); ++i) {
      documents.push_back(request.first_document + static_cast<std::int32_t>(i));
    }
  }
  shuffle_as_numpy(std::span(documents).subspan(begin), random);
}

std::vector<MegatronRow> sample_rows(const MegatronRequest& request,
                                     std::span<const std::int32_t> documents,
                                     std::int64_t num_samples) {
  const auto length_at = [&](std::int64_t place) {
    const std::int32_t document = documents[static_cast<std::size_t>(place)];
    return std::int64_t{
        request.lengths[static_cast<std::size_t>(document - request.first_document)]};
  };
  const auto last = static_cast<std::int64_t>(documents.size()) - 1;
  std::vector<MegatronRow> rows;
  rows.reserve(static_cast<std::size_t>(num_samples) + 1);
  MegatronRow at;
  rows.push_back(at);
  for (std::int64_t sample = 0; sample < num_samples; ++sample) {
    std::int64_t left = request.seq_length + 1;
    while (true) {
      const std::int64_t length = length_at(at.place) - at.offset;
      left -= length;
      if (left <= 0) {
        at.offset += left + length - 1;
        break;
      }
      if (at.place == last) {
        at.offset = length_at(at.place) - 1;
        break;
      }
      ++at.place;
      at.offset = 0;
    }
    rows.push_back(at);
  }
  return rows;
}

// The largest of w_i * max(position, 1) - count_i; the first of equals.
std::size_t most_wanting(std::span<const double> weights, std::span<const std::int64_t> counts,
                         std::span<const std::int64_t> sizes, std::int64_t position) {
  const double scale = static_cast<double>(std::max<std::int64_t>(position, 1));
  std::size_t best = weights.size();
  double largest = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (!sizes.empty() && counts[i] == sizes[i]) continue;
    const double error = weights[i] * scale - static_cast<double>(counts[i]);
    if (best == weights.size() || error > largest) {
      best = i;
      largest = error;
    }
  }
  return best;
}

MegatronBlend blend_of(std::span<const double> weights, std::span<const std::int64_t> sizes,
                       std::int64_t num_samples) {
  MegatronBlend blend;
  blend.dataset.reserve(static_cast<std::size_t>(num_samples));
  blend.sample.reserve(static_cast<std::size_t>(num_samples));
  std::vector<std::int64_t> counts(weights.size());
  for (std::int64_t position = 0; position < num_samples; ++position) {
    const std::size_t next = most_wanting(weights, counts, sizes, position);
    blend.dataset.push_back(static_cast<std::int32_t>(next));
    blend.sample.push_back(counts[next]++);
  }
  return blend;
}

}  // namespace

MegatronIndex megatron_index(const MegatronRequest& request) {
  const std::int64_t tokens_in_epoch =
      std::accumulate(request.lengths.begin(), request.lengths.end(), std::int64_t{0});
  const std::int64_t S = request.seq_length;
  ORTHANT_CHECK(tokens_in_epoch > S, "megatron: {} tokens, a sample has {}", tokens_in_epoch,
                S + 1);
  const std::int64_t wanted = request.num_samples.value_or(0);
  const std::int64_t epochs =
      std::max<std::int64_t>(1, (wanted * S + 1 + tokens_in_epoch - 1) / tokens_in_epoch);
  const std::int64_t num_samples = (epochs * tokens_in_epoch - 1) / S;
  const std::int64_t whole_samples = ((epochs - 1) * tokens_in_epoch - 1) / S;
  const std::int64_t of_an_epoch = (tokens_in_epoch - 1) / S;
  // A last epoch of which little is used keeps to itself, so that the others are used up first.
  constexpr double kLittle = 0.80;
  const bool is_apart =
      epochs > 1 && wanted - whole_samples <
                        static_cast<std::int64_t>(kLittle * static_cast<double>(of_an_epoch));
  std::mt19937 random(request.seed);
  MegatronIndex index;
  append_documents(request, is_apart ? epochs - 1 : epochs, random, index.documents);
  if (is_apart) append_documents(request, 1, random, index.documents);
  index.rows = sample_rows(request, index.documents, num_samples);
  index.shuffle.resize(static_cast<std::size_t>(num_samples));
  std::iota(index.shuffle.begin(), index.shuffle.end(), std::int64_t{0});
  const std::span<std::int64_t> all(index.shuffle);
  const std::size_t first = is_apart ? static_cast<std::size_t>(whole_samples) : all.size();
  shuffle_as_numpy(all.first(first), random);
  if (is_apart) shuffle_as_numpy(all.subspan(first), random);
  return index;
}

MegatronBlend megatron_blend(std::span<const double> weights, std::int64_t num_samples) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<double> shares(weights.begin(), weights.end());
  std::for_each(shares.begin(), shares.end(), [sum](double& share) { share /= sum; });
  return blend_of(shares, {}, num_samples);
}

MegatronBlend megatron_blend_of_all(std::span<const std::int64_t> sizes) {
  const std::int64_t sum = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  std::vector<double> shares;
  shares.reserve(sizes.size());
  for (const std::int64_t size : sizes) {
    shares.push_back(static_cast<double>(size) / static_cast<double>(sum));
  }
  return blend_of(shares, sizes, sum);
}

std::int64_t megatron_share(double weight, std::int64_t num_samples) {
  constexpr double kSurplus = 1.005;
  const double share = std::ceil(weight * static_cast<double>(num_samples));
  return static_cast<std::int64_t>(std::ceil(share * kSurplus));
}

}  // namespace orthant
