#include "train/run_batch.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/check.h"
#include "base/text.h"

namespace orthant {
namespace {

constexpr std::int64_t kMaxBatch = 1'000'000'000;

// Of what is too large by far for a batch: some number above kMaxBatch.
std::int64_t product(std::int64_t a, std::int64_t b, std::int64_t c) {
  std::int64_t two = 0;
  std::int64_t three = 0;
  const bool is_far = __builtin_mul_overflow(a, b, &two) || __builtin_mul_overflow(two, c, &three);
  return is_far ? kMaxBatch + 1 : three;
}

// "layout.micro_batch=2 or 4": the values below and above `number`, up to `most`, that fit; empty
// where none does.
std::string nearest_fitting(const char* option, std::int64_t number, std::int64_t most,
                            const std::function<bool(std::int64_t)>& fits) {
  constexpr std::int64_t kFarthest = 1'000'000;
  std::string found;
  for (std::int64_t below = std::min(number - 1, most); below >= 1; --below) {
    if (number - below > kFarthest) break;
    if (!fits(below)) continue;
    found = fmt::format("{}", below);
    break;
  }
  for (std::int64_t above = number + 1; above <= most; ++above) {
    if (above - number > kFarthest) break;
    if (!fits(above)) continue;
    found += fmt::format("{}{}", found.empty() ? "" : " or ", above);
    break;
  }
  return found.empty() ? "" : fmt::format(", or {}={}", option, found);
}

void check_batch(const std::string& option, std::int64_t batch, const RunConfig& config) {
  const LayoutConfig& layout = config.layout;
  const std::int64_t micro = layout.micro_batch;
  const std::int64_t unit = micro * layout.dp();
  if (batch % unit == 0) return;
  const std::int64_t model = std::int64_t{layout.tp} * layout.pp;
  const std::int64_t micro_unit = micro_batch_unit(layout, config.train.seq_length);
  const std::string micros = nearest_fitting(
      "layout.micro_batch", micro, batch / layout.dp(),
      [&](std::int64_t b) { return b % micro_unit == 0 && batch % (b * layout.dp()) == 0; });
  const std::string ranks = nearest_fitting(
      "layout.ranks", layout.ranks, batch / micro * model,
      [&](std::int64_t r) { return r % model == 0 && batch % (micro * (r / model)) == 0; });
  fail_user("{}={} is not a multiple of micro_batch*dp={}*{}={}; use {}{}{}", option, batch, micro,
            layout.dp(), unit, nearest_multiples(batch, unit), micros, ranks);
}

void check_accumulation(const RunConfig& config) {
  const std::int64_t batch = config.train.global_batch;
  const std::int64_t count = config.train.accumulation;
  const std::int64_t micro = config.layout.micro_batch;
  const std::int64_t dp = config.layout.dp();
  const std::int64_t whole = product(micro, dp, count);
  if (count == 0 || batch == whole) return;
  if (whole > kMaxBatch) {
    fail_user("train.accumulation={} makes batches of more than {} sequences; lower it", count,
              kMaxBatch);
  }
  std::string others;
  if (batch % (micro * dp) == 0) others = fmt::format(", or accumulation={}", batch / (micro * dp));
  const std::int64_t unit = dp * count * micro_batch_unit(config.layout, config.train.seq_length);
  if (batch % unit == 0) {
    others += fmt::format(", or layout.micro_batch={}", batch / (dp * count));
  }
  fail_user("train.global_batch={} is not micro_batch*dp*accumulation={}*{}*{}={}; use {}{}", batch,
            micro, dp, count, whole, whole, others);
}

}  // namespace

std::string nearest_multiples(std::int64_t number, std::int64_t unit) {
  const std::int64_t below = number / unit * unit;
  if (below == 0) return fmt::format("{}", unit);
  return fmt::format("{} or {}", below, below + unit);
}

std::int64_t micro_batch_unit(const LayoutConfig& layout, std::int64_t seq_length) {
  const std::int64_t halves = layout.takes_turns() ? 2 : 1;
  if (!layout.sequence_parallel && !layout.split_saved_inputs) return halves;
  const std::int64_t parts = layout.tp * halves;
  return std::lcm(parts / std::gcd(seq_length, parts), halves);
}

void settle_batch(RunConfig& config, const FieldList& options) {
  const LayoutConfig& layout = config.layout;
  TrainConfig& train = config.train;
  const std::int64_t model = std::int64_t{layout.tp} * layout.pp;
  const bool has_mesh = layout.tp > 0 && layout.pp > 0 && layout.ranks > 0 &&
                        layout.ranks % model == 0;  // validate() says what is wrong with it
  if (train.accumulation <= 0 || !has_mesh) return;
  const std::int64_t unit = product(train.accumulation, layout.dp(), 1);
  if (!options.is_given("train.global_batch")) {
    train.global_batch = product(layout.micro_batch, layout.dp(), train.accumulation);
  } else if (!options.is_given("layout.micro_batch")) {
    if (train.global_batch % unit != 0) {
      fail_user("train.global_batch={} is not a multiple of dp*accumulation={}*{}={}; use {}{}",
                train.global_batch, layout.dp(), train.accumulation, unit,
                nearest_multiples(train.global_batch, unit),
                nearest_fitting("train.accumulation", train.accumulation,
                                train.global_batch / layout.dp(), [&](std::int64_t count) {
                                  return train.global_batch % (count * layout.dp()) == 0;
                                }));
    }
    config.layout.micro_batch = train.global_batch / unit;
  }
}

void check_batches(const RunConfig& config) {
  check_accumulation(config);
  check_batch("train.global_batch", config.train.global_batch, config);
  std::int64_t before = 0;
  for (const std::vector<std::int64_t>& entry : config.train.batch_ramp) {
    if (entry.size() != 2) {
      fail_user("train.batch_ramp has an entry of {} numbers; write [from_step, global_batch]",
                entry.size());
    }
    if (entry[0] <= before) {
      fail_user("train.batch_ramp has from_step={} behind {}; steps must rise from 1 on", entry[0],
                before);
    }
    before = entry[0];
    constexpr const char* kOption = "train.batch_ramp: global_batch";
    if (entry[1] < 1) fail_user("{}={} must be at least 1; correct it", kOption, entry[1]);
    if (entry[1] > kMaxBatch)
      fail_user("{}={} is above {}; correct it", kOption, entry[1], kMaxBatch);
    check_batch(kOption, entry[1], config);
  }
}

}  // namespace orthant
