// Evaluation without training: values only, forward passes only.
#include <algorithm>
#include <cstdio>
#include <mutex>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "ckpt/safetensors.h"
#include "train/algorithm_file.h"
#include "train/fit.h"
#include "train/loop.h"
#include "train/run_data.h"
#include "train/run_ranks.h"
#include "train/weights.h"

namespace orthant {
namespace {

// Logits and losses of the first global batch, gathered on the host from all ranks. A loss that
// does not count, of a document's last token, is 0.
class LogitsFile {
 public:
  LogitsFile(const RunConfig& config, std::string path)
      : rows_(config.train.global_batch * config.train.seq_length),
        vocab_(config.model.vocab),
        path_(std::move(path)) {
    if (path_.empty()) return;
    logits_.resize(static_cast<std::size_t>(rows_ * vocab_));
    loss_.resize(static_cast<std::size_t>(rows_));
  }
  bool is_wanted() const { return !path_.empty(); }

  // Rows first_row.. and the columns of one vocabulary part.
  void put(Device& device, const LmHead& head, const LmHead::Saved& saved, std::int64_t first_row) {
    const std::int64_t T = saved.loss.count();
    if (first_row + T > rows_) return;
    const std::int64_t width = saved.logits.shape[1];
    std::vector<std::byte> raw(static_cast<std::size_t>(saved.logits.bytes()));
    device.to_host(raw, saved.logits);
    const auto value = [&](std::int64_t i) {
      if (saved.logits.dtype == DType::kF32) return reinterpret_cast<const float*>(raw.data())[i];
      if (saved.logits.dtype == DType::kF16) {
        return static_cast<float>(reinterpret_cast<const Half*>(raw.data())[i]);
      }
      return static_cast<float>(reinterpret_cast<const BFloat16*>(raw.data())[i]);
    };
    const std::lock_guard lock(mutex_);
    for (std::int64_t t = 0; t < T; ++t) {
      for (std::int64_t v = 0; v < head.valid_columns(); ++v) {
        logits_[static_cast<std::size_t>((first_row + t) * vocab_ + head.first_column() + v)] =
            value(t * width + v);
      }
    }
    if (head.first_column() != 0) return;  // every tp rank has the losses, one puts them
    const auto part =
        std::span(loss_).subspan(static_cast<std::size_t>(first_row), static_cast<std::size_t>(T));
    device.to_host(std::as_writable_bytes(part), saved.loss);
  }

  // Ranks that are processes: each has put its own, and the rest is 0.
  void gather(Communicator& world) {
    world.all_reduce(tensor(logits_, {rows_, vocab_}), Reduce::kSum);
    world.all_reduce(tensor(loss_, {rows_}), Reduce::kSum);
  }

  void write() {
    const std::vector<NamedTensor> tensors = {{"logits", tensor(logits_, {rows_, vocab_})},
                                              {"per_token_loss", tensor(loss_, {rows_})}};
    write_safetensors(path_, tensors);
  }

 private:
  static Tensor tensor(std::vector<float>& values, const Shape& shape) {
    return {
        .data = reinterpret_cast<std::byte*>(values.data()), .shape = shape, .dtype = DType::kF32};
  }

  std::int64_t rows_;
  std::int64_t vocab_;
  std::string path_;
  std::mutex mutex_;
  std::vector<float> logits_;
  std::vector<float> loss_;
};

// Global batches of an evaluation of one source.
std::int64_t count_batches(const RunConfig& config, const ValidSource& source) {
  const std::int64_t whole = source.tokens->num_samples() / config.train.global_batch;
  if (whole == 0) {
    fail_user(
        "eval: the validation data of {} has {} sequences of {} tokens, train.global_batch={} "
        "needs more; lower it, or leave that source out",
        source.prefix, source.tokens->num_samples(), config.train.seq_length,
        config.train.global_batch);
  }
  return std::min(config.train.eval_steps, whole);
}

// Batch by batch; `observer`, or none, sees the first.
SourceLoss loss_of(Rank& rank, const EvalFeed& feed, int per_batch,
                   ModelStage::HeadObserver observer) {
  double nats = 0;
  std::int64_t targets = 0;
  const std::span<const HostMicro> micros = feed.micros();
  const auto count = static_cast<std::size_t>(per_batch);
  for (std::size_t first = 0; first < micros.size(); first += count) {
    const MeanLoss mean =
        rank.evaluate(micros.subspan(first, count), per_batch, std::exchange(observer, {}));
    nats += mean.loss * static_cast<double>(mean.targets);
    targets += mean.targets;
  }
  return {.prefix = {},
          .loss = nats / static_cast<double>(std::max<std::int64_t>(1, targets)),
          .tokens = targets};
}

}  // namespace

EvalResult evaluate(const RunConfig& config, const std::string& checkpoint,
                    const std::string& logits, ProcessWorld* world) {
  const std::int64_t G = config.train.global_batch;
  const std::int64_t b = config.layout.micro_batch;
  const std::int64_t dp = config.layout.dp();
  const int per_batch = static_cast<int>(G / (b * dp));
  std::vector<ValidSource> sources;
  std::vector<std::string> left_out;  // parts of a split without one global batch
  std::vector<std::int64_t> batches;  // of each source
  Weights weights;
  Job job = evaluation_of(config, !logits.empty());
  job.transport = transport_of(world);
  const RankConfig rank = rank_config(job);
  RunPlan plan;
  AlgorithmFile algorithms(algorithms_of_run(config));  // those of the training, and none to keep
  agree(world, [&] {
    if (!logits.empty()) require_file_can_be_made(logits, "--logits");
    sources = open_valid_data(config);
    left_out = leave_out_short_parts(config, G, sources);
    if (sources.empty()) {
      fail_user("eval: the run has no validation data; set data.valid or data.split");
    }
    weights =
        checkpoint.empty() ? find_weights(config) : weights_of_checkpoint(config.model, checkpoint);
    for (const ValidSource& source : sources) {
      batches.push_back(count_batches(config, source));
      check_documents(config, *source.tokens, batches.back() * G);
    }
    if (has_first_rank(world)) algorithms.read();
    verify(*weights.source, world);
    plan = plan_run(rank, per_batch);
    require_fit(job, plan, memory_limit(config, world));
  });
  if (has_first_rank(world)) {
    for (const std::string& damage : weights.passed_over) {
      fmt::print(stderr, "{}\n", damage);
    }
    fmt::print(stderr, "weights: {}\n", weights.origin);
    for (const std::string& prefix : left_out) {
      fmt::print(stderr, "note: {} is left out: its part of data.split has no global batch\n",
                 prefix);
    }
  }
  LogitsFile file(config, logits);
  EvalResult result;
  const auto evaluate_on = [&](Rank& r, int number) {
    load_weights(r, *weights.source);
    algorithms.settle(r, world == nullptr);
    const int dp_rank = r.mesh().coord(Axis::kDp);
    ModelStage::HeadObserver observer;
    if (file.is_wanted()) {
      observer = [&](int micro, const LmHead::Saved& saved) {
        file.put(r.device(), *r.head(), saved,
                 (micro * dp + dp_rank) * b * config.train.seq_length);
      };
    }
    std::vector<SourceLoss> losses;
    for (const ValidSource& source : sources) {
      const EvalFeed feed(config, *source.tokens, dp_rank, batches[losses.size()] * G);
      losses.push_back(loss_of(r, feed, per_batch, std::exchange(observer, {})));
      losses.back().prefix = source.prefix;
    }
    if (world != nullptr && file.is_wanted()) file.gather(r.mesh().world());
    if (number == 0) result = whole_of(std::move(losses));
  };
  run_ranks(rank, plan, config.device.kind, world, evaluate_on, algorithms.algorithms());
  if (has_first_rank(world) && file.is_wanted()) file.write();
  return result;
}

}  // namespace orthant
