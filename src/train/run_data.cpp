#include "train/run_data.h"

#include <algorithm>

#include "base/check.h"

namespace orthant {
namespace {

BatchGeometry geometry_of(const RunConfig& config, int dp_rank, std::int64_t global_batch) {
  return {.global_batch = global_batch,
          .micro_batch = config.layout.micro_batch,
          .dp = config.layout.dp(),
          .dp_rank = dp_rank,
          .seq_length = config.train.seq_length,
          .by_document = !config.data.cross_documents};
}

TokenSourceConfig source_config(const RunConfig& config, SplitPart part) {
  const Split split = config.data.split.empty() ? Split{} : parse_split(config.data.split);
  return {.prefixes = config.data.train,
          .order = {.seq_length = config.train.seq_length,
                    .kind = parse_order(config.data.order),
                    .seed = static_cast<std::uint64_t>(config.train.seed),
                    .split = split,
                    .part = part}};
}

// What was drawn by earlier weights stays drawn.
std::vector<BlendEra> eras_of(const DataConfig& data, const Manifest* resumed) {
  if (data.weights.empty()) return {};
  std::vector<BlendEra> eras;
  if (resumed != nullptr) {
    for (const Manifest::Blend& blend : resumed->blends) {
      eras.push_back({.first_position = blend.position, .weights = blend.weights});
    }
  }
  BlendEra now{.first_position = resumed != nullptr ? resumed->position : 0, .weights = {}};
  for (std::size_t i = 0; i < data.train.size(); ++i) {
    now.weights.emplace_back(data.train[i], data.weights[i]);
  }
  if (eras.empty() || eras.back().weights != now.weights) eras.push_back(std::move(now));
  return eras;
}

[[noreturn]] void refuse_documents(const RunConfig& config, const TokenSource& source,
                                   std::int64_t position, std::int64_t found) {
  int dataset = 0;
  source.visit_parts(position, [&dataset](const DocumentPart& part) { dataset = part.dataset; });
  const std::string sequence =
      fmt::format("sequence {} of {} has {} documents", position,
                  source.datasets()[static_cast<std::size_t>(dataset)]->prefix(), found);
  fail_user("data.max_documents={}: {}; raise it, or use 0 for any number",
            config.data.max_documents, sequence);
}

}  // namespace

std::unique_ptr<TokenSource> open_train_data(const RunConfig& config, const Manifest* resumed) {
  require_data(config);
  TokenSourceConfig from = source_config(config, SplitPart::kTrain);
  from.order.eras = eras_of(config.data, resumed);
  from.order.num_samples = config.samples_before(config.train.steps + 1);
  if (from.order.kind == OrderKind::kMegatron && from.order.eras.size() > 1) {
    fail_user(
        "data.order=megatron orders all samples of a training at once, so data.weights cannot "
        "change at a resume: the checkpoint of sample {} has others; use data.order=shuffled",
        resumed->position);
  }
  auto source = std::make_unique<TokenSource>(from);
  check_vocab(*source, config.model.vocab);
  return source;
}

std::vector<Manifest::Blend> blends_of(const TokenSource& source) {
  std::vector<Manifest::Blend> blends;
  for (const BlendEra& era : source.eras()) {
    blends.push_back({.position = era.first_position, .weights = era.weights});
  }
  return blends;
}

std::vector<ValidSource> open_valid_data(const RunConfig& config) {
  TokenSourceConfig from = source_config(config, SplitPart::kValid);
  from.order.kind = OrderKind::kSequential;
  if (!config.data.valid.empty()) {
    from.order.split = Split{};
    from.order.part = SplitPart::kTrain;
  }
  std::vector<ValidSource> sources;
  for (const std::string& prefix : config.valid_prefixes()) {
    from.prefixes = {prefix};
    sources.push_back({.prefix = prefix, .tokens = std::make_unique<TokenSource>(from)});
    check_vocab(*sources.back().tokens, config.model.vocab);
  }
  return sources;
}

std::vector<std::string> leave_out_short_parts(const RunConfig& config, std::int64_t wanted,
                                               std::vector<ValidSource>& sources) {
  std::vector<std::string> left_out;
  const auto is_short = [wanted](const ValidSource& source) {
    return source.tokens->num_samples() < wanted;
  };
  if (!config.data.valid.empty() || std::all_of(sources.begin(), sources.end(), is_short)) {
    return left_out;
  }
  std::erase_if(sources, [&](const ValidSource& source) {
    if (is_short(source)) left_out.push_back(source.prefix);
    return is_short(source);
  });
  return left_out;
}

void check_documents(const RunConfig& config, const TokenSource& source, std::int64_t num_samples) {
  const std::int64_t limit = config.data.max_documents;
  if (limit == 0) return;
  const bool repeats =
      parse_order(config.data.order) != OrderKind::kMegatron && source.eras().empty();
  if (repeats) num_samples = std::min(num_samples, source.num_samples());  // an epoch says all
  for (std::int64_t position = 0; position < num_samples; ++position) {
    const std::int64_t found = source.num_documents(position);
    if (found > limit) refuse_documents(config, source, position, found);
  }
}

TrainFeed::TrainFeed(const RunConfig& config, const TokenSource& source, int dp_rank,
                     std::int64_t first_step)
    : config_(config),
      source_(source),
      dp_rank_(dp_rank),
      step_(first_step) {
  const std::int64_t per_micro = config.layout.micro_batch * config.layout.dp();
  micros_.reserve(static_cast<std::size_t>(config.max_global_batch() / per_micro));
}

// A loader counts steps from 0 and wants where step 0 would have begun at this global batch.
void TrainFeed::open(std::int64_t step) {
  global_batch_ = config_.global_batch_at(step);
  BatchGeometry geometry = geometry_of(config_, dp_rank_, global_batch_);
  geometry.origin = config_.samples_before(step) - (step - 1) * global_batch_;
  loader_.reset();
  loader_.emplace(source_, geometry, step - 1);
}

std::span<const HostMicro> TrainFeed::next() {
  if (config_.global_batch_at(step_) != global_batch_) open(step_);
  const Batch batch = loader_->next();
  micros_.clear();
  for (std::int64_t micro = 0; micro < batch.num_micros; ++micro) {
    HostMicro& host = micros_.emplace_back();
    host.tokens = batch.micro_tokens(micro);
    host.sample_ids = batch.micro_positions(micro);
    if (batch.places.empty()) continue;
    host.places = batch.micro_places(micro);
    host.num_targets = batch.targets[static_cast<std::size_t>(micro)];
  }
  ++step_;
  return micros_;
}

EvalFeed::EvalFeed(const RunConfig& config, const TokenSource& source, int dp_rank,
                   std::int64_t num_samples) {
  const BatchGeometry geometry = geometry_of(config, dp_rank, num_samples);
  const std::int64_t row = config.train.seq_length + 1;
  const std::int64_t b = config.layout.micro_batch;
  const std::int64_t rows = geometry.num_micros() * b;
  tokens_.resize(static_cast<std::size_t>(rows * row));
  positions_.resize(static_cast<std::size_t>(rows));
  if (geometry.by_document) places_.resize(tokens_.size());
  const auto part = [](auto& all, std::int64_t first, std::int64_t count) {
    return std::span(all).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
  };
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t position = sample_position(geometry, 0, i / b, i % b);
    positions_[static_cast<std::size_t>(i)] = position;
    source.copy_sample(position, part(tokens_, i * row, row));
    if (geometry.by_document) source.copy_places(position, part(places_, i * row, row));
  }
  for (std::int64_t micro = 0; micro < geometry.num_micros(); ++micro) {
    HostMicro& host = micros_.emplace_back();
    host.tokens = part(tokens_, micro * b * row, b * row);
    host.sample_ids = part(positions_, micro * b, b);
    if (!geometry.by_document) continue;
    host.places = part(places_, micro * b * row, b * row);
    host.num_targets = num_targets(source, geometry, 0, micro);
  }
}

}  // namespace orthant
