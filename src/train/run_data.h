// The data of a run: training and validation sources, and one rank's micro-batches of a step.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/manifest.h"
#include "data/loader.h"
#include "data/token_source.h"
#include "model/stage.h"
#include "train/run_config.h"

namespace orthant {

// Opened and checked: ids outside the model's vocabulary are a user error. `resumed`, null in a new
// run: a blend whose weights have changed since goes on in every dataset behind its last sample.
std::unique_ptr<TokenSource> open_train_data(const RunConfig& config, const Manifest* resumed);
// The weights of a blend, from the first sample on, as a checkpoint keeps them.
std::vector<Manifest::Blend> blends_of(const TokenSource& source);

struct ValidSource {
  std::string prefix;
  std::unique_ptr<TokenSource> tokens;
};
// Of each of config.valid_prefixes(), opened and checked: empty when the run file names none.
std::vector<ValidSource> open_valid_data(const RunConfig& config);

// Takes out the parts of a split that have fewer than `wanted` sequences, unless all have: nobody
// named them for evaluation one by one. Returns their prefixes.
std::vector<std::string> leave_out_short_parts(const RunConfig& config, std::int64_t wanted,
                                               std::vector<ValidSource>& sources);

// Refuses data that has, among its first num_samples samples, a sequence of more documents than
// config.data.max_documents.
void check_documents(const RunConfig& config, const TokenSource& source, std::int64_t num_samples);

// The training batches of one rank, one step after another, through changes of the global batch.
class TrainFeed {
 public:
  TrainFeed(const RunConfig& config, const TokenSource& source, int dp_rank,
            std::int64_t first_step);
  // The micro-batches of the next step; valid until the following call.
  std::span<const HostMicro> next();

 private:
  void open(std::int64_t step);
  const RunConfig& config_;
  const TokenSource& source_;
  int dp_rank_;
  std::int64_t step_;  // from 1: of the following next()
  std::int64_t global_batch_ = 0;
  std::optional<Loader> loader_;
  std::vector<HostMicro> micros_;
};

// One rank's micro-batches of an evaluation: the first num_samples of one source in order.
class EvalFeed {
 public:
  EvalFeed(const RunConfig& config, const TokenSource& source, int dp_rank,
           std::int64_t num_samples);
  std::span<const HostMicro> micros() const { return micros_; }

 private:
  std::vector<std::int32_t> tokens_;
  std::vector<std::int64_t> positions_;
  std::vector<std::int32_t> places_;
  std::vector<HostMicro> micros_;
};

}  // namespace orthant
