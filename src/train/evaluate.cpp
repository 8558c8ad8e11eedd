// Evaluation without training: values only, forward passes only.
#include <algorithm>
#include <cstdio>
#include <mutex>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "ckpt/safetensors.h"
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

}  // namespace

EvalResult evaluate(const RunConfig& config, const std::string& checkpoint,
                    const std::string& logits, ProcessWorld* world) {
  const std::int64_t G = config.train.global_batch;
  const std::int64_t b = config.layout.micro_batch;
  const std::int64_t dp = config.layout.dp();
  const int per_batch = static_cast<int>(G / (b * dp));
  std::int64_t batches = 0;
  std::unique_ptr<TokenSource> valid;
  Weights weights;
  Job job = evaluation_of(config, !logits.empty());
  job.transport = transport_of(world);
  const RankConfig rank = rank_config(job);
  RunPlan plan;
  agree(world, [&] {
    if (!logits.empty()) require_file_can_be_made(logits, "--logits");
    valid = open_valid_data(config);
    if (valid == nullptr) {
      fail_user("eval: the run has no validation data; set data.valid or data.split");
    }
    weights =
        checkpoint.empty() ? find_weights(config) : weights_of_checkpoint(config.model, checkpoint);
    const std::int64_t whole = valid->num_samples() / G;
    if (whole == 0) {
      fail_user(
          "eval: the validation data has {} sequences of {} tokens, train.global_batch={} needs "
          "more; lower it",
          valid->num_samples(), config.train.seq_length, G);
    }
    verify(*weights.source, world);
    batches = std::min(config.train.eval_steps, whole);
    check_documents(config, *valid, batches * G);
    plan = plan_run(rank, per_batch);
    require_fit(job, plan, memory_limit(config, world));
  });
  if (has_first_rank(world)) {
    for (const std::string& damage : weights.passed_over) {
      fmt::print(stderr, "{}\n", damage);
    }
    fmt::print(stderr, "weights: {}\n", weights.origin);
  }
  LogitsFile file(config, logits);
  EvalResult result;
  run_ranks(rank, plan, config.device.kind, world, [&](Rank& r, int number) {
    load_weights(r, *weights.source);
    const int dp_rank = r.mesh().coord(Axis::kDp);
    const EvalFeed feed(config, *valid, dp_rank, batches * G);
    double sum = 0;  // nats
    std::int64_t targets = 0;
    for (std::int64_t batch = 0; batch < batches; ++batch) {
      ModelStage::HeadObserver observer;
      if (batch == 0 && file.is_wanted()) {
        observer = [&](int micro, const LmHead::Saved& saved) {
          file.put(r.device(), *r.head(), saved,
                   (micro * dp + dp_rank) * b * config.train.seq_length);
        };
      }
      const MeanLoss mean =
          r.evaluate(feed.micros().subspan(static_cast<std::size_t>(batch * per_batch),
                                           static_cast<std::size_t>(per_batch)),
                     per_batch, std::move(observer));
      sum += mean.loss * static_cast<double>(mean.targets);
      targets += mean.targets;
    }
    if (world != nullptr && file.is_wanted()) file.gather(r.mesh().world());
    if (number != 0) return;
    result = {.loss = sum / static_cast<double>(std::max<std::int64_t>(1, targets)),
              .tokens = targets};
  });
  if (has_first_rank(world) && file.is_wanted()) file.write();
  return result;
}

}  // namespace orthant
