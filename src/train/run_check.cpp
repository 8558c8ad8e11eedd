// validate(): every option by itself, then what this version builds, then what must fit together.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <numeric>
#include <set>

#include "base/check.h"
#include "base/text.h"
#include "model/build.h"
#include "train/run_batch.h"
#include "train/run_config.h"
#include "train/run_schedule.h"

namespace orthant {
namespace {

void check_word(const char* option, const std::string& value,
                const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), value) != known.end()) return;
  fail_user("{}='{}' is not known; did you mean '{}'? Known are {}", option, value,
            nearest(value, known), join(known));
}

// Far above any run, and low enough that tokens of a whole run can be counted.
constexpr std::int64_t kMaxCount = 1'000'000'000;

void check_least(const char* option, std::int64_t value, std::int64_t least) {
  if (value < least) fail_user("{}={} must be at least {}; correct it", option, value, least);
  if (value > kMaxCount) fail_user("{}={} is above {}; correct it", option, value, kMaxCount);
}

// Factors are at most kMaxCount or a product of two that are.
void check_product(const char* options, std::int64_t a, std::int64_t b, std::int64_t most) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product) || product > most) {
    fail_user("{} is {}*{}, above {}; lower one of them", options, a, b, most);
  }
}

// In [least, most); `most` may be infinite.
void check_number(const char* option, double value, double least, double most) {
  if (value >= least && value < most) return;
  if (std::isinf(most)) fail_user("{}={} must be at least {}; correct it", option, value, least);
  fail_user("{}={} must be at least {} and below {}; correct it", option, value, least, most);
}

void check_words(const RunConfig& config) {
  const LayoutConfig& layout = config.layout;
  check_word("layout.schedule", layout.schedule,
             {"gpipe", "1f1b", "interleaved", "zero_bubble", "zero_bubble_v", "file"});
  if (layout.stages.is_text()) {
    check_word("layout.stages", layout.stages.text, {"even", "balanced"});
  }
  check_word("layout.zero_gather", layout.zero_gather, {"micro", "step"});
  check_word("layout.tp_overlap", layout.tp_overlap, {"rows", "halves"});
  check_word("layout.recompute", layout.recompute, {"none", "cheap", "attention", "block"});
  check_word("layout.offload", layout.offload, {"none", "stash", "optimizer"});
  check_word("precision.compute", config.precision.compute, {"fp32", "bf16", "fp16"});
  check_word("precision.master", config.precision.master, {"fp32", "split"});
  check_word("precision.grad_accum", config.precision.grad_accum, {"fp32", "bf16"});
  check_word("optimizer.moments", config.optimizer.moments, {"fp32", "bf16"});
  check_word("checkpoint.on_failure", config.checkpoint.on_failure, {"stop", "warn"});
  check_word("data.order", config.data.order, {"shuffled", "sequential", "megatron"});
  check_word("device.kind", config.device.kind, {"cpu", "cuda"});
}

void check_master(const PrecisionConfig& precision) {
  if (precision.master == "fp32" || precision.compute == "bf16") return;
  fail_user(
      "precision.master='{}' needs weights in bf16, the upper half of their masters, but "
      "precision.compute='{}'; use precision.compute='bf16' or precision.master='fp32'",
      precision.master, precision.compute);
}

void check_layout_numbers(const LayoutConfig& layout) {
  check_least("layout.ranks", layout.ranks, 1);
  check_least("layout.tp", layout.tp, 1);
  check_least("layout.pp", layout.pp, 1);
  check_least("layout.virtual_stages", layout.virtual_stages, 1);
  check_least("layout.micro_batch", layout.micro_batch, 1);
  check_least("layout.recompute_blocks", layout.recompute_blocks, 0);
  if (layout.zero_stage < 0 || layout.zero_stage > 3) {
    fail_user("layout.zero_stage={} is not a stage of ZeRO; use 0, 1, 2 or 3", layout.zero_stage);
  }
  if (!(layout.offload_fraction >= 0 && layout.offload_fraction <= 1)) {
    fail_user("layout.offload_fraction={} must lie between 0 and 1; correct it",
              layout.offload_fraction);
  }
  if (!(layout.deadline_s > 0)) {
    fail_user("layout.deadline_s={} must be above 0; give seconds", layout.deadline_s);
  }
  if (layout.recompute_blocks > 0 && layout.recompute == "none") {
    fail_user("layout.recompute_blocks={} needs a layout.recompute other than 'none'; use 0",
              layout.recompute_blocks);
  }
  if (layout.split_saved_inputs && layout.recompute != "block") {
    fail_user("layout.split_saved_inputs=true needs layout.recompute='block'; use false");
  }
  if (layout.offload == "stash" && layout.recompute == "block") {
    fail_user(
        "layout.offload='stash' has nothing to move with layout.recompute='block', which keeps "
        "only inputs; use one of them");
  }
  if (layout.schedule == "file" && layout.schedule_file.empty()) {
    fail_user("layout.schedule='file' needs layout.schedule_file; give the file");
  }
  if (layout.schedule != "file" && !layout.schedule_file.empty()) {
    fail_user("layout.schedule_file='{}' needs layout.schedule='file', which is '{}'; keep one",
              layout.schedule_file, layout.schedule);
  }
}

void check_numbers(const RunConfig& config) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const TrainConfig& train = config.train;
  check_least("train.steps", train.steps, 0);
  check_least("train.global_batch", train.global_batch, 1);
  check_least("train.accumulation", train.accumulation, 0);
  check_least("train.seq_length", train.seq_length, 0);
  if (train.seed < 0) fail_user("train.seed={} is negative; give 0 or more", train.seed);
  check_least("train.eval_interval", train.eval_interval, 0);
  check_least("train.eval_steps", train.eval_steps, 1);
  check_number("train.max_minutes", train.max_minutes, 0, kInfinity);
  check_number("optimizer.beta1", config.optimizer.beta1, 0, 1);
  check_number("optimizer.beta2", config.optimizer.beta2, 0, 1);
  check_number("optimizer.weight_decay", config.optimizer.weight_decay, 0, kInfinity);
  check_number("optimizer.clip_grad", config.optimizer.clip_grad, 0, kInfinity);
  if (!(config.optimizer.eps > 0)) {
    fail_user("optimizer.eps={} must be above 0; correct it", config.optimizer.eps);
  }
  check_least("data.max_documents", config.data.max_documents, 0);
  if (config.data.cross_documents && config.data.max_documents > 0) {
    fail_user(
        "data.max_documents={} limits documents that data.cross_documents=true does not tell "
        "apart; leave one of them out",
        config.data.max_documents);
  }
  check_least("checkpoint.interval", config.checkpoint.interval, 0);
  check_least("checkpoint.keep", config.checkpoint.keep, 0);
}

std::string or_list(std::vector<std::string> parts) {
  if (parts.size() == 1) return parts[0];
  const std::string last = parts.back();
  parts.pop_back();
  return join(parts) + " or " + last;
}

std::string fitting_tps(const ModelConfig& model) {
  std::vector<std::string> fitting;
  for (std::int64_t tp = 1; tp <= model.heads; ++tp) {
    if (tp_fits(model, tp)) fitting.push_back(fmt::format("{}", tp));
  }
  return or_list(fitting);
}

void check_tp(const ModelConfig& model, const LayoutConfig& layout) {
  if (tp_fits(model, layout.tp)) return;
  for (const auto& [name, number] : {std::pair("num_heads", model.heads), {"ffn", model.ffn}}) {
    if (number % layout.tp == 0) continue;
    fail_user("layout.tp={} does not divide {}={}; use {}", layout.tp, name, number,
              fitting_tps(model));
  }
  fail_user("layout.tp={} neither divides kv_heads={} nor is a multiple of it; use {}", layout.tp,
            model.kv_heads, fitting_tps(model));
}

void check_rows(const LayoutConfig& layout, std::int64_t seq_length) {
  if (layout.takes_turns() && layout.micro_batch % 2 != 0) {
    fail_user(
        "layout.tp_overlap=halves halves micro-batches, and layout.micro_batch={} is odd; use "
        "{}, or rows",
        layout.micro_batch, nearest_multiples(layout.micro_batch, 2));
  }
  const std::int64_t unit = micro_batch_unit(layout, seq_length);
  if (layout.micro_batch % unit == 0) return;
  fail_user(
      "layout.{} splits the {} rows of a micro-batch, micro_batch*seq_length={}*{}, "
      "over tp={}{}, which does not divide them; use micro_batch {}",
      layout.sequence_parallel ? "sequence_parallel" : "split_saved_inputs",
      layout.micro_batch * seq_length, layout.micro_batch, seq_length, layout.tp,
      layout.takes_turns() ? " and halves" : "", nearest_multiples(layout.micro_batch, unit));
}

void check_stages(const ModelConfig& model, const LayoutConfig& layout) {
  const std::int64_t num_stages = std::int64_t{layout.pp} * layout.virtual_stages;
  if (num_stages > model.layers && layout.virtual_stages == 1) {
    fail_user("layout.pp={} leaves a stage without a block: model.layers={}; use at most {}",
              layout.pp, model.layers, model.layers);
  }
  if (num_stages > model.layers) {
    fail_user(
        "layout.pp={} stages of {} parts are more than model.layers={}; lower layout.pp or {}",
        layout.pp, layout.virtual_stages, model.layers,
        layout.schedule == "interleaved" ? "layout.virtual_stages" : "use another schedule");
  }
  if (layout.stages.is_text()) return;
  const std::vector<std::int64_t>& counts = layout.stages.ints;
  if (static_cast<std::int64_t>(counts.size()) != num_stages) {
    fail_user("layout.stages has {} layer counts, but there are {} {}; give one for each",
              counts.size(), num_stages, layout.virtual_stages == 1 ? "stages" : "parts");
  }
  for (std::size_t i = 0; i < counts.size(); ++i) {
    // The embedding or the head alone is a stage, too.
    const bool is_end = counts.size() > 1 && (i == 0 || i + 1 == counts.size());
    const std::int64_t least = is_end ? 0 : 1;
    if (counts[i] >= least && counts[i] <= model.layers) continue;
    fail_user("layout.stages has a stage of {} blocks; give each between {} and model.layers={}",
              counts[i], least, model.layers);
  }
  const std::int64_t sum = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  if (sum != model.layers) {
    fail_user("layout.stages adds up to {} blocks, but model.layers={}; change the counts", sum,
              model.layers);
  }
}

void check_ranks(const LayoutConfig& layout) {
  const std::int64_t unit = std::int64_t{layout.tp} * layout.pp;
  if (layout.ranks % unit != 0) {
    fail_user("layout.ranks={} is not a multiple of tp*pp={}*{}={}; use {} ranks", layout.ranks,
              layout.tp, layout.pp, unit, nearest_multiples(layout.ranks, unit));
  }
}

void settle_sequence(RunConfig& config) {
  if (config.train.seq_length == 0) config.train.seq_length = config.model.max_positions;
}

void check_sequence(const RunConfig& config) {
  const std::int64_t seq_length = config.train.seq_length;
  if (config.model.position == "learned" && seq_length > config.model.max_positions) {
    fail_user(
        "train.seq_length={} is longer than the learned positions, max_positions={}; use at "
        "most that",
        seq_length, config.model.max_positions);
  }
  check_product("layout.micro_batch * train.seq_length", config.layout.micro_batch, seq_length,
                kMaxCount);
  check_product("train.eval_steps * train.global_batch", config.train.eval_steps,
                config.max_global_batch(), kMaxCount);
  check_product("train.steps * train.global_batch * train.seq_length",
                config.train.steps * config.max_global_batch(), seq_length,
                std::numeric_limits<std::int64_t>::max() / 2);
}

// "969,30,1": three shares.
void check_split(const std::string& split_text) {
  const std::vector<std::string> parts = split(split_text, ',');
  double sum = 0;
  bool is_good = parts.size() == 3;
  for (const std::string& part : parts) {
    std::size_t used = 0;
    double share = -1;
    try {
      share = std::stod(part, &used);
    } catch (const std::exception&) {
      is_good = false;
    }
    is_good = is_good && used == part.size() && std::isfinite(share) && share >= 0;
    sum += share;
  }
  if (!is_good || !(sum > 0)) {
    fail_user(
        "data.split='{}' is not three shares; write training, validation and test as 969,30,1",
        split_text);
  }
}

// Also where it is written in two ways, as a and ./a.
bool has_one_twice(const std::vector<std::string>& prefixes) {
  std::set<std::filesystem::path> places;
  for (const std::string& prefix : prefixes) {
    places.insert(std::filesystem::path(prefix).lexically_normal());
  }
  return places.size() != prefixes.size();
}

void check_weights(const DataConfig& data) {
  if (data.weights.empty()) return;
  if (data.weights.size() != data.train.size()) {
    fail_user("data.weights has {} numbers for {} prefixes of data.train; give one for each",
              data.weights.size(), data.train.size());
  }
  double sum = 0;
  for (const double weight : data.weights) {
    if (!std::isfinite(weight) || weight < 0) {
      fail_user("data.weights has {}; weights are finite and at least 0", weight);
    }
    sum += weight;
  }
  if (!std::isfinite(sum) || sum == 0) {
    fail_user("data.weights sum to {}; give at least one prefix a weight above 0", sum);
  }
  if (has_one_twice(data.train)) {
    fail_user(
        "data.train names a prefix twice, which data.weights cannot tell apart; name it once");
  }
}

void check_data(const RunConfig& config) {
  const DataConfig& data = config.data;
  check_weights(data);
  constexpr std::int64_t kMegatronSeeds = std::int64_t{1} << 32;
  if (data.order == "megatron" && config.train.seed >= kMegatronSeeds) {
    fail_user("train.seed={} is not a seed of data.order=megatron; give one below {}",
              config.train.seed, kMegatronSeeds);
  }
  if (has_one_twice(data.valid)) {
    fail_user("data.valid names a prefix twice, each has a loss of its own; name it once");
  }
  if (!data.split.empty()) {
    if (!data.valid.empty()) {
      fail_user("data.valid and data.split='{}' are both given; keep one", data.split);
    }
    check_split(data.split);
  }
  if (config.train.eval_interval > 0 && data.valid.empty() && data.split.empty()) {
    fail_user("train.eval_interval={} needs validation data; give data.valid or data.split, or 0",
              config.train.eval_interval);
  }
}

void check_checkpoint(const CheckpointConfig& checkpoint) {
  if (checkpoint.interval > 0 && checkpoint.dir.empty()) {
    fail_user("checkpoint.interval={} needs checkpoint.dir; give a folder", checkpoint.interval);
  }
}

}  // namespace

void validate(RunConfig& config) {
  complete(config.model);
  check_words(config);
  check_master(config.precision);
  check_layout_numbers(config.layout);
  check_numbers(config);
  check_lr(config.lr());
  check_tp(config.model, config.layout);
  check_ranks(config.layout);
  settle_sequence(config);
  check_batches(config);
  settle_schedule(config);
  check_stages(config.model, config.layout);
  check_sequence(config);
  check_rows(config.layout, config.train.seq_length);
  check_data(config);
  check_checkpoint(config.checkpoint);
}

void require_data(const RunConfig& config) {
  if (config.data.train.empty()) {
    fail_user("data.train is empty; give the prefix of a dataset, which 'orthant data pack' makes");
  }
}

}  // namespace orthant
