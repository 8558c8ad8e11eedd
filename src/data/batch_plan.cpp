// Feistel rounds by philox; everything else is a division.
#include "data/batch_plan.h"

#include <bit>

#include "base/check.h"
#include "base/random.h"

namespace orthant {
namespace {

constexpr int kNumRounds = 6;
constexpr std::uint64_t kOrderStream = stream_of("data.order");

}  // namespace

void check_geometry(const BatchGeometry& geometry) {
  const BatchGeometry& g = geometry;
  if (g.micro_batch < 1 || g.global_batch < 1 || g.seq_length < 1) {
    fail_user(
        "train.global_batch={}, layout.micro_batch={}, train.seq_length={}: all must be at "
        "least 1",
        g.global_batch, g.micro_batch, g.seq_length);
  }
  ORTHANT_CHECK(g.dp >= 1 && g.dp_rank >= 0 && g.dp_rank < g.dp, "batch: dp rank {} of {}",
                g.dp_rank, g.dp);
  if (g.global_batch % (g.micro_batch * g.dp) != 0) {
    fail_user(
        "train.global_batch={} is not a multiple of layout.micro_batch={} * dp={}; use {} or {}",
        g.global_batch, g.micro_batch, g.dp,
        (g.num_micros() == 0 ? 1 : g.num_micros()) * g.micro_batch * g.dp,
        (g.num_micros() + 1) * g.micro_batch * g.dp);
  }
}

std::int64_t shuffled_index(std::int64_t index, std::int64_t count, std::uint64_t seed,
                            std::int64_t epoch) {
  ORTHANT_CHECK(index >= 0 && index < count, "shuffle: index {} of {}", index, count);
  const int num_bits = std::bit_width(static_cast<std::uint64_t>(count) - 1);
  const int half = num_bits <= 2 ? 1 : (num_bits + 1) / 2;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  const std::uint64_t stream = kOrderStream + static_cast<std::uint64_t>(epoch) * kNumRounds;
  auto x = static_cast<std::uint64_t>(index);
  do {
    std::uint64_t left = x >> half;
    std::uint64_t right = x & mask;
    for (std::uint64_t round = 0; round < kNumRounds; ++round) {
      const std::uint64_t mixed = left ^ (philox(seed, stream + round, right)[0] & mask);
      left = right;
      right = mixed;
    }
    x = left << half | right;
  } while (x >= static_cast<std::uint64_t>(count));
  return static_cast<std::int64_t>(x);
}

std::int64_t sample_at(std::int64_t position, std::int64_t num_samples, bool is_shuffled,
                       std::uint64_t seed) {
  ORTHANT_CHECK(position >= 0 && num_samples > 0, "samples: position {} of {} samples", position,
                num_samples);
  const std::int64_t index = position % num_samples;
  if (!is_shuffled) return index;
  return shuffled_index(index, num_samples, seed, position / num_samples);
}

}  // namespace orthant
