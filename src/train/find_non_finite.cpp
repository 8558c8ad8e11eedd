// Rank::find_non_finite: every rank looks at its own layers, the earliest place in the model wins.
#include <limits>

#include "train/rank.h"

namespace orthant {
namespace {

// Places count through the model: the embedding is 0, block b is b + 1, the head comes last. The
// gradients have places behind all layers.
std::string name_of_place(std::int64_t place, std::int64_t num_blocks) {
  if (place == 0) return "embed";
  return place <= num_blocks ? fmt::format("h.{}", place - 1) : "head";
}

std::int64_t place_of_parameter(const std::string& name, std::int64_t num_blocks) {
  if (name.starts_with("embed.")) return 0;
  return name.starts_with("h.") ? std::stoll(name.substr(2)) + 1 : num_blocks + 1;
}

}  // namespace

double Rank::first_bad_place(const std::string& bad_gradient) {
  const std::int64_t num_blocks = config_.model.layers;
  std::vector<std::int64_t> counts(static_cast<std::size_t>(probe_counts_.count()));
  backend_.device.to_host(std::as_writable_bytes(std::span(counts)), probe_counts_);
  auto count = counts.begin();
  for (const auto& chunk : chunks_) {
    for (int i = 0; i < chunk->num_layers(); ++i) {
      if (*count++ > 0) return static_cast<double>(chunk->place_of(i));
    }
  }
  if (bad_gradient.empty()) return std::numeric_limits<double>::max();
  return static_cast<double>(num_blocks + 2 + place_of_parameter(bad_gradient, num_blocks));
}

std::string Rank::find_non_finite(std::span<const HostMicro> micros, int num_micros) {
  ledger_.restart();
  const std::string gradient = store_->first_non_finite_grad();
  ops_->run(Zero{.y = probe_counts_});
  write_state(micros, num_micros);
  stage_->probe_into(probe_counts_);
  run({Mode::kTrain, Slots::List::kForwardOnly, micros, num_micros});
  stage_->probe_into({});

  double earliest = -first_bad_place(gradient);
  const Tensor shared = totals_.flat(0, 1);
  backend_.device.to_device(shared, std::as_bytes(std::span(&earliest, 1)));
  world_->all_reduce(shared, Reduce::kMax);
  backend_.device.to_host(std::as_writable_bytes(std::span(&earliest, 1)), shared);
  const std::int64_t num_blocks = config_.model.layers;
  const auto num_layers = static_cast<double>(num_blocks + 2);
  if (-earliest >= 2 * num_layers) return "the sum of the gradients' squares";
  if (-earliest < num_layers) {
    return name_of_place(static_cast<std::int64_t>(-earliest), num_blocks);
  }
  const auto place = static_cast<std::int64_t>(-earliest - num_layers);
  const bool is_here = !gradient.empty() && place_of_parameter(gradient, num_blocks) == place;
  return is_here ? "a gradient: that of " + gradient
                 : "a gradient of " + name_of_place(place, num_blocks);
}

}  // namespace orthant
